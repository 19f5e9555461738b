"""Look up the runs of a recipe in a folder, and record the ones that cannot be used."""

from collections.abc import Collection, Iterable
from pathlib import Path

from toosure.config import RunConfig
from toosure.runs import Run


class RunStore:
    """Find runs by their config in one folder; `problems` says why others cannot be used.

    Runs named in `saved` are not missing without a folder: their scores are saved.
    """

    def __init__(self, folder: str | Path, saved: Collection[str] = ()) -> None:
        self.folder = Path(folder)
        self.saved = saved
        self.problems: dict[str, str] = {}  # run name -> missing, diverged at step ...
        self._opened: dict[str, Run] = {}

    def runs(self, configs: Iterable[RunConfig], diverged: bool = False) -> list[Run]:
        """Return the usable runs among `configs`, in order (see `run`)."""
        return [run for config in configs if (run := self.run(config, diverged)) is not None]

    def run(self, config: RunConfig, diverged: bool = False) -> Run | None:
        """Return the complete run of a config, or None and an entry in `problems`.

        With `diverged`, also return a run that diverged after a few rows.
        """
        run = self._open(config.name)
        if run is None:
            return None

        if run.status != "complete" and run.name in self.saved:
            return None  # its scores are saved, so another unfinished training does not matter
        if run.status == "complete":
            expected = min(2, len(config.at) or 2)  # rows of the shortest run that can be used
            if len(run.rows) >= expected:
                return run
            self.problems[run.name] = f"complete, but only {len(run.rows)} rows are left of it"
            return None

        self.problems[run.name] = run.ending
        if diverged and run.status == "diverged" and len(run.rows) > 2:
            return run
        return None

    def _open(self, name: str) -> Run | None:
        """Return the run in the folder `name`, read once, or None if there is none."""
        if name not in self._opened:
            folder = self.folder / name
            if not (folder / "config.json").is_file():
                if name not in self.saved:
                    self.problems[name] = "missing"
                return None
            self._opened[name] = Run(folder)
        return self._opened[name]
