"""Tables and claims of a recipe on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toosure.cli.tables import terminal_table
from toosure.recipes.results import claims_laid_out

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable

    from toosure.recipes.recipe import Claim, Table


NAME = 30  # characters of a name that are on one line
SENTENCE = 40  # characters, from which a cell is a sentence
MANY_COLUMNS = 5


def claims_table(claims: "Sequence[Claim]") -> "TerminalTable":
    """Lay out claims: a failure stands out, an unjudged claim recedes."""
    styles = {True: None, False: "bold red", None: "dim"}
    header, rows = claims_laid_out(claims)
    table = terminal_table(*header)
    for claim, row in zip(claims, rows, strict=True):
        table.add_row(*row, style=styles[claim.passed])
    return table


def recipe_table(table: "Table", width: int) -> "TerminalTable":
    """Lay out the columns of a recipe's table that fit in a width; numbers are not cut.

    The first column, the names, may take several lines. What is left out stands below.
    """
    shown = columns_that_fit(table, width)
    left_out = [name for name in table.header[shown:] if name]
    layout = terminal_table(title=table.title)
    if left_out:
        layout.caption = f"no room for: {', '.join(left_out)} (--html, --write)"
        layout.caption_justify = "left"

    for number, name in enumerate(table.header[:shown]):
        if number == 0:
            layout.add_column(name, overflow="fold")
        else:
            fixed = shown < len(table.header)
            layout.add_column(name, justify="right" if name else "left", no_wrap=fixed)
    for row in table.rows:
        layout.add_row(*row[:shown])
    return layout


def columns_that_fit(table: "Table", width: int) -> int:
    """Return how many of the first columns fit; all, where they are few or hold sentences."""
    cells = [[name, *(row[place] for row in table.rows)] for place, name in enumerate(table.header)]
    widths = [max(map(len, column)) for column in cells]
    if len(widths) < MANY_COLUMNS or max(widths[1:]) > SENTENCE:
        return len(widths)

    used = min(widths[0], NAME)
    for place, needed in enumerate(widths[1:], 1):
        used += needed + 2
        if used > width:
            return max(place, 2)
    return len(widths)
