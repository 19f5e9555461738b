"""The `toosure` command: thin, each command calls one function of the library."""

from toosure.cli import calibrate, data, evaluate, report, reproduce, runs, train  # noqa: F401  (they add their commands)
from toosure.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app(prog_name="toosure")
