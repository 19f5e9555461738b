"""HTML: the shell of every page, all inlined, and its blocks: numbers, figures, tables.

Each block is a function from values to HTML that escapes every name it is given.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from toosure import __version__
from toosure.figures.style import DARK
from toosure.quantities import Quantity, described

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Shown(NamedTuple):
    """A cell of a number: what it is sorted by, how it reads, a small line below, if the best."""

    value: float | None
    text: str
    note: str = ""
    best: bool = False


class Markup(str):
    """A cell that is HTML already; it is sorted by its `value`."""

    value: float | str = ""

    @classmethod
    def of(cls, html: str, value: float | str) -> "Markup":
        """Return HTML that was escaped, with what it is sorted by."""
        made = cls(html)
        made.value = value
        return made


Cell = str | int | float | tuple[str, str] | Shown | Markup | None
Heading = str | Quantity
LONG = 24  # rows of a sortable table that scrolls by itself
CHART = ("chart_axes.js", "chart.js", "chart_hover.js")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    title: str, body: str, scripts: bool = True, more: Sequence[str] = (), policy: str = POLICY
) -> str:
    """Return a whole page; its figures are drawn by the scripts that it carries.

    `more` names scripts beside this file that a page needs besides those of every page.

    >>> "<title>a &lt;b&gt;</title>" in page("a <b>", "<p>hello</p>", scripts=False)
    True
    """
    parts = {"title": escape(title), "policy": policy, "version": escape(__version__)}
    parts |= {
        "style": asset("page.css"),
        "body": body,
        "scripts": scripting(more) if scripts else "",
    }
    return re.sub(r"<!-- (\w+) -->", lambda slot: parts[slot[1]], asset("page.html"))


def asset(name: str) -> str:
    """Read a file that lies beside this one, also inside a wheel."""
    return files("toosure.page").joinpath(name).read_text(encoding="utf-8")


def scripting(more: Sequence[str] = ()) -> str:
    """Return the colours of the dark page and our scripts, inline."""
    colours = f"const DARK = {in_script(json.dumps(DARK))};"
    names = (*CHART, *more, "tools.js", "page.js")
    scripts = (colours, *map(asset, names))
    return "\n".join(f"<script>{code}</script>" for code in scripts)


def in_script(text: str) -> str:
    """Keep JSON from ending the script element that holds it.

    >>> in_script('"</script>"')
    '"\\\\u003c/script>"'
    """
    return text.replace("<", "\\u003c")


def prose(text: str) -> str:
    """Escape a sentence, and keep each number on one line with its unit; `this` becomes code.

    >>> prose("95 % of <b>"), prose("run `a b`")
    ('95&nbsp;% of &lt;b&gt;', 'run <code>a b</code>')
    """
    escaped = (
        escape(text)
        .replace(" %", "&nbsp;%")
        .replace(" ± ", "&nbsp;±&nbsp;")
        .replace("± ", "±&nbsp;")
    )
    return re.sub("`([^`]+)`", r"<code>\1</code>", escaped)


FIGURE_TOOLS = (
    '<p class="tools">save as <button type="button" data-do="svg">SVG</button> '
    '<button type="button" data-do="png">PNG</button></p>'
)
TABLE_TOOLS = (
    '<p class="tools"><button type="button" data-do="copy-table">copy</button> '
    '<button type="button" data-do="csv">CSV</button></p>'
)


def figure(drawing: "Figure", title: str, note: str = "", heading: str = "h2") -> str:
    """Return a block with a title, a Plotly figure and a line on how to read it."""
    said = f"<figcaption>{prose(note)}</figcaption>" if note else ""
    return (
        f"<figure><{heading}>{escape(title)}</{heading}>{plot(drawing, title, note)}{said}"
        f"{FIGURE_TOOLS}</figure>"
    )


def plot(
    drawing: "Figure | None", title: str, note: str = "", kind: str = "", role: str = ""
) -> str:
    """Return a figure alone; `kind` is a class of ours, `role` what our scripts call it.

    Without a drawing, the scripts make it from the data of the page.
    """
    source = ""
    if drawing is not None:
        source = f'<script type="application/json">{in_script(drawing.to_json())}</script>'
    label = ". ".join(filter(None, (title, note)))
    return (
        f'<div class="{" ".join(("plot", kind)).strip()}" role="img" tabindex="0" '
        f'data-role="{escape(role)}" aria-label="{escape(label)}"></div>{source}'
    )


def term(quantity: Quantity, text: str = "") -> str:
    """Return the name of a quantity that says what it means and leads to its definition."""
    if not quantity.says:
        return escape(text or quantity.heading)
    return (
        f'<a class="term" href="#term-{escape(quantity.key)}" data-tip="{tip_of(quantity)}">'
        f"{escape(text or quantity.heading)}</a>"
    )


def called(key: str, label: str) -> Quantity:
    """Return a quantity under another name, for a heading that leads to its definition."""
    return replace(described(key), label=label)


def tip_of(quantity: Quantity) -> str:
    """Return what a quantity means as text of a tooltip, which has no code."""
    return escape(quantity.says.replace("`", ""))


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Return a row of numbers, each with its name above and a small note below."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in values
    )
    return f'<dl class="tiles">{cells}</dl>'


def section(title: str, note: str, *blocks: str, name: str = "", short: str = "") -> str:
    """Return a titled part of the page; one with a `name` can be folded, and linked to by it.

    `short` is its title in the contents.
    """
    said = f"<p>{prose(note)}</p>" if note else ""
    inner = f"{said}{''.join(blocks)}"
    if not name:
        return f"<section><h2>{escape(title)}</h2>{inner}</section>"
    link = f'<a class="anchor" href="#{escape(name)}" aria-label="link to {escape(title)}">#</a>'
    return (
        f'<section id="{escape(name)}" data-title="{escape(short or title)}"><details open>'
        f"<summary><h2>{escape(title)}</h2></summary>{link}{inner}</details></section>"
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

    A quantity as a heading says what it means. A cell of two texts is a name and a small line
    below. `attributes` are those of the rows; `name` tells the table from others with the same
    headings. A sortable table can be copied and saved as CSV. On a narrow screen a table scrolls
    sideways in its own box.
    """
    rows = list(rows)
    formats = formats or [""] * len(header)
    marks = [marked(all(is_number(row[i]) for row in rows)) for i in range(len(header))]

    head = "".join(heading(*each, sortable) for each in zip(header, marks, strict=True))
    lines = []
    for row, attribute in zip(rows, attributes or [""] * len(rows), strict=True):
        cells = "".join(cell(*each) for each in zip(row, formats, marks, strict=True))
        lines.append(f"<tr {attribute}>{cells}</tr>" if attribute else f"<tr>{cells}</tr>")

    kind = ' class="sortable"' if sortable else ""
    tall = " tall" if sortable and len(rows) > LONG else ""
    heard = name or ", ".join(each if isinstance(each, str) else each.short for each in header)
    drawn = (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="table: {escape(heard)}">'
        f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
    return f'<div class="sheet">{drawn}{TABLE_TOOLS}</div>' if sortable else drawn


def is_number(value: Cell) -> bool:
    return isinstance(value, Shown) or not isinstance(value, str | tuple)


def marked(numeric: bool) -> str:
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
            f'<a class="what" href="#term-{escape(name.key)}" data-tip="{tip_of(name)}" '
            f'aria-label="what is {escape(name.short)}?">?</a>'
        )
    button = f'<button type="button">{escape(text)}</button>'
    return f'<th scope="col"{mark}><span class="named">{button}{what}</span></th>'


def cell(value: Cell, form: str, mark: str) -> str:
    """Return one cell, with the value that it is sorted by."""
    if isinstance(value, Markup):
        return f'<td{mark} data-value="{escape(str(value.value))}">{value}</td>'

    if isinstance(value, Shown):
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


def breakable(name: str) -> str:
    """Escape a name that may break after a comma or colon, not between a word and its number.

    >>> breakable("sgd:lr=0.1, seed 2")
    'sgd:<wbr>lr=0.1,<wbr> seed&nbsp;2'
    """
    return re.sub("([,:])", r"\1<wbr>", re.sub(r"(\w) (\d)", r"\1&nbsp;\2", escape(name)))


def printed(value: str | float | None, form: str = "") -> str:
    """Print a value: a true minus, a dash where there is none, small numbers to two digits.

    >>> printed(-0.5, "+.2f"), printed(-0.001, "+.2f"), printed(0.000189, ".4f"), printed(None)
    ('−0.50', '0.00', '0.00019', '–')
    >>> printed(72.25, ".1f"), printed(2.5, ".3g"), printed(2, ".3g")
    ('72.3', '2.50', '2')
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return "–"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "−∞"
    small = form == ".4f" and 0 < abs(value) < 0.001
    exact = value * (1 + 1e-9) if form.endswith("f") else value  # halves go up, as in the scripts
    if form.endswith("g") and 1e-3 <= abs(value) < 1e3 and value != int(value):
        form = f"#{form}"  # as many digits in each row of a column
    text = format(exact, ".2g" if small else form).rstrip(".")
    return text.replace("-", "−") if text.strip("+-0.") else text.lstrip("+-")
