"""The command `toosure` itself: its name, its version, and how it reports errors."""

import errno
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from toosure import __version__

# In the order of the help: judge predictions, train and look, then the rest.
ORDER = (
    *("evaluate", "compare", "calibrate", "apply"),
    *("train", "runs", "report", "live", "tune", "ensemble"),
    *("demo", "methods", "data", "reproduce"),
)


class Commands(TyperGroup):
    """The group of commands; turns errors of files into one line instead of a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno in (None, errno.EPIPE):  # nobody reads the output any more
                raise
            place = f"{error.filename}: " if error.filename else ""
            fail(f"{place}{error.strerror}")


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"toosure {__version__}")
        raise typer.Exit


@app.callback()
def toosure(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Is your classifier too sure? Measure how far its probabilities can be trusted."""


def fail(message: str) -> NoReturn:
    """Print one line to standard error and end with exit code 2."""
    typer.echo(f"toosure: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)
