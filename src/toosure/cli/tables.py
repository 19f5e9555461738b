"""Tables on a terminal, and their width if the output goes elsewhere."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED = 200  # characters of a line that goes to a file or another program
UNLIMITED = 1000  # for tables that must not be folded


def terminal_table(*headings: str, title: str | None = None) -> "Table":
    """Return an empty table without borders, as every command prints it."""
    from rich.table import Table

    return Table(
        *headings,
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="dim",
    )


def numbers_table(first: str, *headings: str) -> "Table":
    """Return an empty table whose first column is text and whose others are numbers."""
    table = terminal_table()
    table.add_column(first, overflow="fold")  # names tell rows apart: none is cut
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def console(piped: int = PIPED) -> "Console":
    """Return a console as wide as the terminal; `piped` characters if there is no terminal.

    FORCE_COLOR, as continuous integration sets it, asks for colours and not for 80 characters.
    """
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else piped)


def print_table(table: "Table") -> None:
    """Print a table, at its full width if there is no terminal."""
    console(UNLIMITED).print(table)
