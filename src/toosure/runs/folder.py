"""A folder of runs as it grows: new runs and new rows are taken in, what is gone is forgotten."""

import time
from pathlib import Path

from toosure.runs.find import find_runs
from toosure.runs.run import Run
from toosure.runs.storage import as_url, local_folder
from toosure.runs.stored_folder import updated

FETCH_INTERVAL = 10.0  # seconds between two looks into a storage


class RunFolder:
    """The runs below a folder, which may come later; files that are links are left unread.

    Those of a URL are fetched at once, and again when they are asked for ten seconds later.
    """

    def __init__(self, folder: str | Path) -> None:
        self.url = as_url(folder)
        self.folder = local_folder(folder)
        for path in (self.folder, *self.folder.parents):  # below a file no folder can come
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is not a folder: name the folder that holds the runs")
        self.runs: dict[Path, Run] = {}
        self.fetched_at = -FETCH_INTERVAL
        if self.url is not None:
            self.fetch(self.url)

    def fetch(self, url: str) -> None:
        """Fetch what changed in a storage."""
        updated(url)
        self.fetched_at = time.monotonic()

    def refresh(self) -> list[Run]:
        """Take in new runs and new rows."""
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
