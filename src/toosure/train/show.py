"""Who is told how a run goes: nobody here, the terminal in the command line."""

from pathlib import Path
from typing import Any

from toosure.config import RunConfig


class Show:
    """Be told of a run's progress and say nothing; override what is of interest."""

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        """A run starts at `step`, above 0 where it resumes."""

    def row(self, row: dict[str, Any]) -> None:
        """A measurement was written."""

    def tick(self, step: int) -> None:
        """Some steps have passed."""

    def say(self, message: str) -> None:
        """Something worth a line happened."""

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        """The run ended, or was found ended: `status`, `step`, `message`."""

    def fail(self, config: RunConfig, message: str) -> None:
        """A run could not be carried out."""
        self.say(f"failed: {config.name}: {message}")

    def beside(self) -> "Show":
        """Return who is told of one of several runs that go on at once; here, the same one."""
        return self
