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

    fixed = shown < len(table.header)
    for place, name in enumerate(table.header[:shown]):
        column = [row[place] for row in table.rows]
        if place == 0:
            layout.add_column(name, overflow="fold")
        elif holds_words(column):
            layout.add_column(name, min_width=longest_word([name, *column]))
        else:
            layout.add_column(name, justify="right", no_wrap=fixed)
    for row in table.rows:
        layout.add_row(*row[:shown])
    return layout


def columns_that_fit(table: "Table", width: int) -> int:
    """Return how many of the first columns fit; all, where they are few or hold sentences.

    Words may take several lines, so that the numbers beside them have room.
    """
    columns = [[row[place] for row in table.rows] for place in range(len(table.header))]
    cells = [[name, *column] for name, column in zip(table.header, columns, strict=True)]
    widths = [max(map(len, column)) for column in cells]
    if len(widths) < MANY_COLUMNS or max(widths[1:]) > SENTENCE:
        return len(widths)

    used = min(widths[0], NAME)
    for place in range(1, len(widths)):
        words = holds_words(columns[place])
        used += 2 + (longest_word(cells[place]) if words else widths[place])
        if used > width:
            return max(place, 2)
    return len(widths)


def holds_words(column: Sequence[str]) -> bool:
    """Whether most cells of a column are words, not numbers.

    >>> holds_words(["ResNet-18, 30 epochs"]), holds_words(["74.04 ± 0.35", "–"])
    (True, False)
    """
    return 2 * sum(cell[:1].isalpha() for cell in column) > len(column)


def longest_word(cells: Sequence[str]) -> int:
    """Return the number of letters of the longest word."""
    return max((len(word) for cell in cells for word in cell.split()), default=0)
