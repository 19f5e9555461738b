"""Tables in HTML: headings that explain and sort, cells of numbers, names or markup."""

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from toosure.page.html import breakable, prose, term, tooltip
from toosure.page.number_text import printed
from toosure.quantities import Quantity


class NumberCell(NamedTuple):
    """A cell of a number: the value to sort by, its text, a small note below, and if it is best."""

    value: float | None
    text: str
    note: str = ""
    best: bool = False


class HtmlCell(str):
    """A cell of finished HTML, which is sorted by its `value`."""

    value: float | str = ""

    @classmethod
    def of(cls, html: str, value: float | str) -> "HtmlCell":
        """Make a cell of escaped HTML and the value to sort it by."""
        made = cls(html)
        made.value = value
        return made


Cell = str | int | float | tuple[str, str] | NumberCell | HtmlCell | None
Heading = str | Quantity
LONG = 24  # rows of a sortable table that scrolls by itself
TABLE_TOOLS = (
    '<p class="tools"><button type="button" data-do="copy-table">copy</button> '
    '<button type="button" data-do="csv">CSV</button></p>'
)


def table(
    header: Sequence[Heading],
    rows: Iterable[Sequence[Cell]],
    formats: Sequence[str] | None = None,
    sortable: bool = False,
    attributes: Sequence[str] | None = None,
    name: str = "",
) -> str:
    """Return a table; columns without words are aligned as numbers and printed by `formats`.

    A quantity as a heading links to its meaning. A cell of two texts is a name and a small note
    below it. `attributes` are HTML attributes of the rows; `name` labels the table for screen
    readers. A sortable table can be copied and saved as CSV. On a narrow screen a table scrolls
    sideways in its own box.
    """
    rows = list(rows)
    formats = formats or [""] * len(header)
    marks = [number_class(all(is_number(row[i]) for row in rows)) for i in range(len(header))]

    head = "".join(heading(*each, sortable) for each in zip(header, marks, strict=True))
    lines = []
    for row, attribute in zip(rows, attributes or [""] * len(rows), strict=True):
        cells = "".join(cell(*each) for each in zip(row, formats, marks, strict=True))
        lines.append(f"<tr {attribute}>{cells}</tr>" if attribute else f"<tr>{cells}</tr>")

    kind = ' class="sortable"' if sortable else ""
    tall = " tall" if sortable and len(rows) > LONG else ""
    label = name or ", ".join(each if isinstance(each, str) else each.short for each in header)
    drawn = (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="table: {escape(label)}">'
        f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
    return f'<div class="sheet">{drawn}{TABLE_TOOLS}</div>' if sortable else drawn


def mean_cell(values: Sequence[float], form: str, best: bool = False) -> NumberCell:
    """Return a mean over seeds, with their standard deviation below it."""
    if not values:
        return NumberCell(None, "–")
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return cell_with_spread(float(np.mean(values)), spread, form, best)


def cell_with_spread(
    value: float | None, spread: float | None, form: str, best: bool = False
) -> NumberCell:
    """Return a number with a standard deviation below it; a dash if there is no number."""
    text = printed(value, form)
    if value is None or not math.isfinite(value):
        return NumberCell(None, text)
    note = "" if spread is None else f"± {printed(spread, form_like(text, form))}"
    return NumberCell(value, text, note, best)


def form_like(text: str, form: str) -> str:
    """Return the form that gives a spread as many decimals as its mean has.

    >>> form_like("2.50", ".3g"), form_like("1.2e−05", ".3g"), form_like("+0.50", "+.2f")
    ('.2f', '.3g', '.2f')
    """
    decimals = re.fullmatch(r"−?\d+\.(\d+)", text)
    return f".{len(decimals[1])}f" if decimals and form.endswith("g") else form.lstrip("+")


def is_number(value: Cell) -> bool:
    return isinstance(value, NumberCell) or not isinstance(value, str | tuple)


def number_class(numeric: bool) -> str:
    """Return the class attribute of a column's cells."""
    return ' class="number"' if numeric else ""


def heading(name: Heading, mark: str, sortable: bool) -> str:
    """Return a column's heading; a button where a press sorts by it, a link to what it means."""
    text = name if isinstance(name, str) else name.heading
    if not sortable:
        inner = escape(text) if isinstance(name, str) else term(name)
        return f'<th scope="col"{mark}>{inner}</th>'

    what = ""
    if isinstance(name, Quantity) and name.says:
        what = (
            f'<a class="what" href="#term-{escape(name.key)}" data-tip="{tooltip(name)}" '
            f'aria-label="what is {escape(name.short)}?">?</a>'
        )
    button = f'<button type="button">{escape(text)}</button>'
    return f'<th scope="col"{mark}><span class="named">{button}{what}</span></th>'


def cell(value: Cell, form: str, mark: str) -> str:
    """Return one cell, with the value that it is sorted by."""
    if isinstance(value, HtmlCell):
        return f'<td{mark} data-value="{escape(str(value.value))}">{value}</td>'

    if isinstance(value, NumberCell):
        text = escape(value.text)
        text = f"<strong>{text}</strong>" if value.best else text
        note = f"<small>{prose(value.note)}</small>" if value.note else ""
        return f'<td{mark} data-value="{escape(str(value.value))}">{text}{note}</td>'

    if isinstance(value, tuple):
        name, remark = value
        text = f"{breakable(name)}<small>{escape(remark)}</small>"
        return f'<td{mark} data-value="{escape(name)}">{text}</td>'

    text = breakable(value) if isinstance(value, str) else escape(printed(value, form))
    return f'<td{mark} data-value="{escape(str(value))}">{text}</td>'
