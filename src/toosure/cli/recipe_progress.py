"""Progress of `toosure reproduce`: bars on a terminal, else lines."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from toosure.cli.progress import listener_for_runs
from toosure.config import RunConfig
from toosure.train import ProgressListener

QUIET_SECONDS = 30.0  # without a line, after which a log gets a line on the progress


def progress_for(configs: Sequence[RunConfig], workers: int, as_json: bool) -> ProgressListener:
    """Return a listener for the runs: bars on a terminal, else lines of text."""
    if sys.stdout.isatty() and not as_json:
        return listener_for_runs(configs, at_once=workers > 1)
    return ProgressLines(len(configs), to_stderr=as_json)


class ProgressLines(ProgressListener):
    """Print a line when a run ends, and one after each long silence.

    `to_stderr` keeps standard output free for JSON.
    """

    def __init__(self, total: int, to_stderr: bool) -> None:
        self.total = total
        self.to_stderr = to_stderr
        self.ended = 0
        self.last_line = time.monotonic()

    def message(self, message: str) -> None:
        self.last_line = time.monotonic()
        typer.echo(message, err=self.to_stderr)

    def row(self, row: dict[str, Any]) -> None:
        if time.monotonic() - self.last_line > QUIET_SECONDS:
            self.message(f"{self.ended} of {self.total} ended; one is at step {row['step']:,}")

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.ended += 1
        reason = f": {outcome['message']}" if outcome.get("message") else ""
        ending = f"{outcome['status']} at step {outcome['step']:,}{reason}"
        self.message(f"{self.ended} of {self.total}: {ending}  {path.name}")
