"""What `toosure reproduce` prints while its runs are trained: bars on a terminal, else lines."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from toosure.cli.progress import show_for
from toosure.config import RunConfig
from toosure.train import ProgressListener

QUIET_SECONDS = 30.0  # without a line; then a log gets one that says how far the runs are


def progress_for(configs: Sequence[RunConfig], workers: int, as_json: bool) -> ProgressListener:
    """Return what shows the progress of runs: bars on a terminal, else lines of text."""
    if sys.stdout.isatty() and not as_json:
        return show_for(configs, at_once=workers > 1)
    return progress_lines(len(configs), to_stderr=as_json)


def progress_lines(total: int, to_stderr: bool) -> ProgressListener:
    """Return what prints a line when a run ends, and one after each long silence.

    `to_stderr` keeps standard output free for JSON.
    """

    class ProgressLines(ProgressListener):
        ended = 0
        last_line = time.monotonic()

        def say(self, message: str) -> None:
            self.last_line = time.monotonic()
            typer.echo(message, err=to_stderr)

        def row(self, row: dict[str, Any]) -> None:
            if time.monotonic() - self.last_line > QUIET_SECONDS:
                self.say(f"{self.ended} of {total} ended; one is at step {row['step']:,}")

        def end(self, path: Path, outcome: dict[str, Any]) -> None:
            self.ended += 1
            reason = f": {outcome['message']}" if outcome.get("message") else ""
            ending = f"{outcome['status']} at step {outcome['step']:,}{reason}"
            self.say(f"{self.ended} of {total}: {ending}  {path.name}")

    return ProgressLines()
