"""The `toosure` command: thin, each command calls one function of the library."""

import os

from toosure.cli import calibrate, data, evaluate, report, reproduce, runs, train  # noqa: F401  (they add their commands)
from toosure.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="toosure")
    except SystemExit as ended:
        if "WORLD_SIZE" in os.environ:  # torchrun started this process among others
            from toosure.processes.group import end

            end(ended.code)
        raise
