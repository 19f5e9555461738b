"""The `toosure` command: thin, each command calls one function of the library."""

import os

# Importing a module adds its commands.
from toosure.cli import (  # noqa: F401
    apply,
    calibrate,
    compare,
    data,
    demo,
    ensemble,
    evaluate,
    methods,
    report,
    reproduce,
    runs,
    train,
    tune,
)
from toosure.cli.app import app
from toosure.cli.output import reopen_closed_streams, replace_unencodable

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    reopen_closed_streams()
    replace_unencodable()
    try:
        app(prog_name="toosure")
    except SystemExit as ended:
        if "WORLD_SIZE" in os.environ:  # torchrun started this process among others
            from toosure.processes.group import end

            end(ended.code)
        raise
