"""HTML: the shell of every page, all inlined, and its blocks: numbers, figures, tables.

Each block is a function from values to HTML that escapes every name it is given.
"""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from toosure import __version__
from toosure.figures.style import DARK

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Shown(NamedTuple):
    """A cell of a number: what it is sorted by, how it reads, a small line below, if the best."""

    value: float | None
    text: str
    note: str = ""
    best: bool = False


Cell = str | int | float | tuple[str, str] | Shown | None
LONG = 24  # rows of a sortable table that scrolls by itself
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    title: str, body: str, scripts: bool = True, more: Sequence[str] = (), policy: str = POLICY
) -> str:
    """Return a whole page; its figures are drawn by the plotly.js that it carries.

    `more` names scripts beside this file that a page needs besides its own.

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
    """Return plotly.js, the colours of the dark page and our own scripts, inline."""
    from plotly.offline import get_plotlyjs

    colours = f"const DARK = {in_script(json.dumps(DARK))};"
    scripts = (get_plotlyjs(), colours, *map(asset, more), asset("page.js"))
    return "\n".join(f"<script>{code}</script>" for code in scripts)


def in_script(text: str) -> str:
    """Keep JSON from ending the script element that holds it.

    >>> in_script('"</script>"')
    '"\\\\u003c/script>"'
    """
    return text.replace("<", "\\u003c")


def prose(text: str) -> str:
    """Escape a sentence, and keep each number on one line with its unit.

    >>> prose("95 % of <b>")
    '95&nbsp;% of &lt;b&gt;'
    """
    return (
        escape(text)
        .replace(" %", "&nbsp;%")
        .replace(" ± ", "&nbsp;±&nbsp;")
        .replace("± ", "±&nbsp;")
    )


def figure(drawing: "Figure", title: str, note: str = "", heading: str = "h2") -> str:
    """Return a block with a title, a Plotly figure and a line on how to read it."""
    said = f"<figcaption>{prose(note)}</figcaption>" if note else ""
    return (
        f"<figure><{heading}>{escape(title)}</{heading}>{plot(drawing, title, note)}{said}</figure>"
    )


def plot(drawing: "Figure", title: str, note: str = "", kind: str = "", role: str = "") -> str:
    """Return a figure alone; `kind` is a class of ours, `role` what our scripts call it."""
    return (
        f'<div class="{" ".join(("plot", kind)).strip()}" role="img" data-role="{escape(role)}" '
        f'aria-label="{escape(". ".join(filter(None, (title, note))))}"></div>'
        f'<script type="application/json">{in_script(drawing.to_json())}</script>'
    )


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Return a row of numbers, each with its name above and a small note below."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in values
    )
    return f'<dl class="tiles">{cells}</dl>'


def section(title: str, note: str, *blocks: str, name: str = "") -> str:
    """Return a titled part of the page; `name` is its anchor."""
    said = f"<p>{prose(note)}</p>" if note else ""
    anchor = f' id="{escape(name)}"' if name else ""
    return f"<section{anchor}><h2>{escape(title)}</h2>{said}{''.join(blocks)}</section>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    formats: Sequence[str] | None = None,
    sortable: bool = False,
    tips: Sequence[str] | None = None,
) -> str:
    """Return a table; columns without words are aligned as numbers and printed by `formats`.

    A cell of two texts is a name and a small line below. `tips` say what the columns mean. On a
    narrow screen a table scrolls sideways in its own box.
    """
    rows = list(rows)
    formats = formats or [""] * len(header)
    tips = tips or [""] * len(header)
    marks = [marked(all(is_number(row[i]) for row in rows)) for i in range(len(header))]

    columns = zip(header, marks, tips, strict=True)
    head = "".join(heading(name, mark, sortable, tip) for name, mark, tip in columns)
    body = "".join(
        f"<tr>{''.join(cell(*each) for each in zip(row, formats, marks, strict=True))}</tr>"
        for row in rows
    )
    kind = ' class="sortable"' if sortable else ""
    tall = " tall" if sortable and len(rows) > LONG else ""
    return (
        f'<div class="scroll{tall}"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def is_number(value: Cell) -> bool:
    return isinstance(value, Shown) or not isinstance(value, str | tuple)


def marked(numeric: bool) -> str:
    """Return the class attribute of a column's cells."""
    return ' class="number"' if numeric else ""


def heading(name: str, mark: str, sortable: bool, tip: str = "") -> str:
    """Return a column's heading; a button where a press sorts by it."""
    inner = f'<button type="button">{escape(name)}</button>' if sortable else escape(name)
    title = f' title="{escape(tip)}"' if tip else ""
    return f'<th scope="col"{mark}{title}>{inner}</th>'


def cell(value: Cell, form: str, mark: str) -> str:
    """Return one cell, with the value that it is sorted by."""
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
    """Escape a name that may break after a comma or colon.

    >>> breakable("sgd:lr=0.1")
    'sgd:<wbr>lr=0.1'
    """
    return re.sub("([,:])", r"\1<wbr>", escape(name))


def printed(value: str | float | None, form: str = "") -> str:
    """Print a value: a true minus, a dash where there is none, small numbers to two digits.

    >>> printed(-0.5, "+.2f"), printed(-0.001, "+.2f"), printed(0.000189, ".4f"), printed(None)
    ('−0.50', '0.00', '0.00019', '–')
    >>> printed(72.25, ".1f")
    '72.3'
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return "–"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "−∞"
    small = form == ".4f" and 0 < abs(value) < 0.001
    exact = value * (1 + 1e-9) if form.endswith("f") else value  # halves go up, as in the scripts
    text = format(exact, ".2g" if small else form)
    return text.replace("-", "−") if text.strip("+-0.") else text.lstrip("+-")
