"""Follow a folder of runs: add new runs and rows, drop runs that are gone."""

import time
from pathlib import Path

from toosure.runs.find import find_runs
from toosure.runs.run import Run
from toosure.runs.storage import as_url, local_folder
from toosure.runs.stored_folder import fetched_folder

FETCH_INTERVAL = 10.0  # seconds between two fetches from a storage


class RunFolder:
    """The runs below a folder, which need not exist yet; files that are links are not read.

    Runs of a URL are fetched at once, and again at most every ten seconds.
    """

    def __init__(self, folder: str | Path) -> None:
        self.url = as_url(folder)
        self.folder = local_folder(folder)
        for path in (self.folder, *self.folder.parents):  # no folder can appear below a file
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is not a folder: name the folder that holds the runs")
        self.runs: dict[Path, Run] = {}
        self.fetched_at = -FETCH_INTERVAL
        if self.url is not None:
            self.fetch(self.url)

    def fetch(self, url: str) -> None:
        """Fetch what changed in a storage."""
        fetched_folder(url)
        self.fetched_at = time.monotonic()

    def refresh(self) -> list[Run]:
        """Read new runs and new rows, and return all runs."""
        present = {run.path: run for run in self.find()}
        self.runs = {path: self.runs.get(path, run) for path, run in present.items()}
        for run in self.runs.values():
            run.refresh()
        return list(self.runs.values())

    def find(self) -> list[Run]:
        """Return the runs that are there now."""
        try:
            if self.url is not None and time.monotonic() - self.fetched_at > FETCH_INTERVAL:
                self.fetch(self.url)
            return find_runs(self.folder.resolve(), follow_links=False)
        except (OSError, ValueError):
            return []  # there is no such folder yet, or no longer
