"""A folder of runs as it grows: new runs and new rows are taken in, what is gone is forgotten."""

from pathlib import Path
from threading import Lock

from toosure.runs.run import Run, find_runs

FILES = (
    "metrics.jsonl",
    "config.json",
    "environment.json",
    "status.json",
    "temperature.json",
    "snapshots",
    "predictions.npz",
)


class RunFolder:
    """The runs below a folder; links that lead out of the folder are left alone."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.root = self.folder.resolve()
        if not self.root.is_dir():
            raise ValueError(f"{folder} is not a folder: name the folder that holds the runs")
        self.runs: dict[Path, Run] = {}
        self.lock = Lock()  # the live page answers in several threads

    def refresh(self) -> list[Run]:
        """Take in new runs and new rows."""
        present = {run.path: run for run in find_runs(self.root) if is_inside(run.path, self.root)}
        self.runs = {path: self.runs.get(path, run) for path, run in present.items()}
        for run in self.runs.values():
            run.refresh()
        return list(self.runs.values())


def is_inside(run: Path, root: Path) -> bool:
    """Whether a run and all its files lie in the folder, and none is a link to elsewhere."""
    return all(
        (run / name).resolve().is_relative_to(root) and not (run / name).is_symlink()
        for name in ("", *FILES)
    )
