"""A folder of runs as it grows: new runs and new rows are taken in, what is gone is forgotten."""

from pathlib import Path

from toosure.runs.find import find_runs
from toosure.runs.run import Run


class RunFolder:
    """The runs below a folder, which may come later; files that are links are left unread."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{folder} is not a folder: name the folder that holds the runs")
        self.runs: dict[Path, Run] = {}

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
            return find_runs(self.folder.resolve(), follow_links=False)
        except (OSError, ValueError):
            return []  # there is no such folder yet, or no longer
