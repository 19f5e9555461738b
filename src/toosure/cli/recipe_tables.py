"""Tables and claims of a recipe on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toosure.cli.tables import terminal_table
from toosure.recipes.results import CLAIM_HEADER, claim_cells

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable

    from toosure.recipes.recipe import Claim, Table


def claims_table(claims: "Sequence[Claim]") -> "TerminalTable":
    """Lay out claims: a failure stands out, an unjudged claim recedes."""
    styles = {True: None, False: "bold red", None: "dim"}
    table = terminal_table(*CLAIM_HEADER)
    for claim in claims:
        table.add_row(*claim_cells(claim), style=styles[claim.passed])
    return table


def recipe_table(table: "Table") -> "TerminalTable":
    """Lay out a table of a recipe, its numbers aligned to the right."""
    layout = terminal_table(title=table.title)
    for number, name in enumerate(table.header):
        layout.add_column(name, justify="right" if number and name else "left")
    for row in table.rows:
        layout.add_row(*row)
    return layout
