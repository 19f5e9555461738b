"""The shell of every page, all inlined, and its blocks: numbers, figures, tables.

Each block is a function from values to HTML that escapes every name it is given.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from toosure import __version__
from toosure.figures import DARK

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Cell = str | int | float | None
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)


def page(title: str, body: str, scripts: bool = True) -> str:
    """Return a whole page; its figures are drawn by the plotly.js that it carries.

    >>> "<title>a &lt;b&gt;</title>" in page("a <b>", "<p>hello</p>", scripts=False)
    True
    """
    parts = {"title": escape(title), "policy": POLICY, "version": escape(__version__)}
    parts |= {"style": asset("page.css"), "body": body, "scripts": scripting() if scripts else ""}
    html = asset("page.html")
    for name, value in parts.items():
        html = html.replace(f"<!-- {name} -->", value, 1)
    return html


def asset(name: str) -> str:
    """Read a file that lies beside this one, also inside a wheel."""
    return files("toosure.report").joinpath(name).read_text(encoding="utf-8")


def scripting() -> str:
    """Return plotly.js, the colours of the dark page and our own script, inline."""
    from plotly.offline import get_plotlyjs

    colours = f"const DARK = {in_script(json.dumps(DARK))};"
    return "\n".join(
        f"<script>{code}</script>" for code in (get_plotlyjs(), colours, asset("page.js"))
    )


def in_script(text: str) -> str:
    """Keep JSON from ending the script element that holds it.

    >>> in_script('"</script>"')
    '"\\\\u003c/script>"'
    """
    return text.replace("<", "\\u003c")


def figure(drawing: "Figure", title: str, note: str = "") -> str:
    """Return a block with a title, a Plotly figure and a line on how to read it."""
    return (
        f'<figure><h2>{escape(title)}</h2><div class="plot" role="img" '
        f'aria-label="{escape(f"{title}. {note}")}"></div>'
        f'<script type="application/json">{in_script(drawing.to_json())}</script>'
        f"<figcaption>{escape(note)}</figcaption></figure>"
    )


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Return a row of numbers, each with its name above and a small note below."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in values
    )
    return f'<dl class="tiles">{cells}</dl>'


def table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    formats: Sequence[str] | None = None,
    sortable: bool = False,
    note: str = "",
) -> str:
    """Return a table with a title; numbers are aligned, `formats` say how each column prints."""
    formats = formats or [""] * len(header)
    rows = list(rows)
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(header))]
    head = "".join(heading(*column, sortable) for column in zip(header, numeric, strict=True))
    body = "".join(
        f"<tr>{''.join(cell(*each) for each in zip(row, formats, numeric, strict=True))}</tr>"
        for row in rows
    )
    caption = f"<p>{escape(note)}</p>" if note else ""
    kind = ' class="sortable"' if sortable else ""
    return (
        f"<section><h2>{escape(title)}</h2>{caption}<div class='scroll'><table{kind}>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def heading(name: str, numeric: bool, sortable: bool) -> str:
    """Return a column's heading; a button where a press sorts by it."""
    inner = f'<button type="button">{escape(name)}</button>' if sortable else escape(name)
    return f'<th scope="col"{number(numeric)}>{inner}</th>'


def cell(value: Cell, form: str, numeric: bool) -> str:
    """Return one cell, with the value that it is sorted by."""
    text = "–" if value is None else format(value, form) if not isinstance(value, str) else value
    return f'<td{number(numeric)} data-value="{escape(str(value))}">{escape(text)}</td>'


def number(numeric: bool) -> str:
    return ' class="number"' if numeric else ""
