"""The interface that a run reports its progress to; the command line's listeners print."""

from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.runs.row_reader import Row


class ProgressListener:
    """Receive the progress of a run; override the methods that you need."""

    stop_requested = False  # set it to stop this run alone, after its checkpoint

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        """A run starts at `step`, which is above 0 if it resumes."""

    def measuring(self, step: int) -> None:
        """A measurement begins; that of step 0 began with the run."""

    def row(self, row: Row) -> None:
        """A measurement was written."""

    def tick(self, step: int) -> None:
        """Some steps have passed."""

    def message(self, message: str) -> None:
        """Something happened that is worth a line."""

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        """The run ended, or had ended before: `status`, `step`, `message`."""

    def fail(self, config: RunConfig, message: str) -> None:
        """A run raised an error."""
        self.message(f"failed: {config.name}: {message}")

    def for_concurrent_run(self) -> "ProgressListener":
        """Return the listener of one of several runs at once; here, the same for all of them."""
        return self
