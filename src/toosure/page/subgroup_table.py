"""The table of an evaluation with one row per subgroup: the rows of one value of a column."""

from toosure.evaluate import Estimate
from toosure.evaluate.subgroups import Subgroup, Subgroups
from toosure.page.html import prose, section
from toosure.page.number_text import printed
from toosure.page.tables import Cell, HtmlCell, NumberCell, table


def subgroup_table(result: Subgroups) -> str:
    """Return one row per subgroup, as `toosure evaluate --by` prints it."""
    shares = ("accuracy, %", "confidence, %")
    if result.class_one:
        shares = ("class 1 true, %", "P(class 1), %")
    header = (result.column, "n", *shares, "gap, points", "ECE, points", "verdict")
    rows = [row_of(group) for group in result.groups]
    formats = ("", ",", ".1f", ".1f", "", "", "")
    note = f"{result.sentence} Press a heading to sort."
    return section(f"By {result.column}", note, table(header, rows, formats, sortable=True))


def row_of(group: Subgroup) -> list[Cell]:
    """Return the row of a subgroup."""
    tone = group.kind if group.kind in ("over", "under") else ""
    sentence = f'<span class="{tone}">{prose(group.sentence)}</span>'
    return [
        group.name,
        group.n,
        100 * group.frequency,
        100 * group.confidence,
        points(group.gap, "+.1f"),
        points(group.ece, ".1f"),
        HtmlCell.of(sentence, group.sentence),
    ]


def points(estimate: Estimate, form: str) -> NumberCell:
    """Return a share in points, its interval below."""
    value, low, high = (None if each is None else 100 * each for each in estimate)
    note = "" if low is None or high is None else f"{printed(low, form)} to {printed(high, form)}"
    return NumberCell(value, printed(value, form), note)
