"""HTML: the frame of every page, with everything inlined, and its blocks.

Each block is a function from values to HTML that escapes every name it is given. Tables are in
`tables`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from toosure import __version__
from toosure.figures.style import DARK
from toosure.quantities import Quantity, described

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


CHART = ("chart_axes.js", "chart.js", "chart_hover.js")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    title: str, body: str, scripts: bool = True, more: Sequence[str] = (), policy: str = POLICY
) -> str:
    """Return a whole page; its own scripts draw the figures.

    `more` names further scripts beside this file, besides those of every page.

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
    """Read a file beside this one, also inside a wheel."""
    return files("toosure.page").joinpath(name).read_text(encoding="utf-8")


def scripting(more: Sequence[str] = ()) -> str:
    """Return the colours of the dark page and our scripts, inline."""
    colours = f"const DARK = {in_script(json.dumps(DARK))};"
    names = (*CHART, *more, "tools.js", "page.js")
    scripts = (colours, *map(asset, names))
    return "\n".join(f"<script>{code}</script>" for code in scripts)


def in_script(text: str) -> str:
    """Escape JSON so that it cannot end its script element.

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


def figure(drawing: "Figure", title: str, note: str = "", heading: str = "h2") -> str:
    """Return a block with a title, a Plotly figure and a line on how to read it."""
    caption = f"<figcaption>{prose(note)}</figcaption>" if note else ""
    return (
        f"<figure><{heading}>{escape(title)}</{heading}>{plot(drawing, title, note)}{caption}"
        f"{FIGURE_TOOLS}</figure>"
    )


def plot(
    drawing: "Figure | None", title: str, note: str = "", kind: str = "", role: str = ""
) -> str:
    """Return a figure alone; `kind` is a CSS class, `role` its name in our scripts.

    Without a drawing, the scripts make it from the data of the page.
    """
    source = style = ""
    if drawing is not None:
        style = f' style="height: {drawing.layout.height}px"' if drawing.layout.height else ""
        source = f'<script type="application/json">{in_script(drawing.to_json())}</script>'
    label = ". ".join(filter(None, (title, note)))
    return (
        f'<div class="{" ".join(("plot", kind)).strip()}"{style} role="img" tabindex="0" '
        f'data-role="{escape(role)}" aria-label="{escape(label)}"></div>{source}'
    )


def term(quantity: Quantity, text: str = "") -> str:
    """Return the name of a quantity as a link to its definition, with a tooltip."""
    if not quantity.says:
        return escape(text or quantity.heading)
    return (
        f'<a class="term" href="#term-{escape(quantity.key)}" data-tip="{tooltip(quantity)}">'
        f"{escape(text or quantity.heading)}</a>"
    )


def with_label(key: str, label: str) -> Quantity:
    """Return a quantity under another name, for a heading that links to its definition."""
    return replace(described(key), label=label)


def change_of(key: str, label: str = "") -> Quantity:
    """Return a quantity as the heading of its change: a difference of shares is in points.

    >>> change_of("accuracy").heading, change_of("ece", "change of ECE").heading
    ('accuracy, points', 'change of ECE, points')
    """
    quantity = described(key)
    unit = "points" if quantity.unit == "%" else quantity.unit
    return replace(quantity, label=label or quantity.short, unit=unit)


def tooltip(quantity: Quantity) -> str:
    """Return the meaning of a quantity as the text of a tooltip, without code marks."""
    return escape(quantity.says.replace("`", ""))


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Return a row of numbers, each with its name above and a small note below."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in values
    )
    return f'<dl class="tiles">{cells}</dl>'


def section(title: str, note: str, *blocks: str, name: str = "", short: str = "") -> str:
    """Return a titled part of the page; with a `name` it can be folded and linked to.

    `short` is its title in the contents.
    """
    intro = f"<p>{prose(note)}</p>" if note else ""
    inner = f"{intro}{''.join(blocks)}"
    if not name:
        return f"<section><h2>{escape(title)}</h2>{inner}</section>"
    link = f'<a class="anchor" href="#{escape(name)}" aria-label="link to {escape(title)}">#</a>'
    return (
        f'<section id="{escape(name)}" data-title="{escape(short or title)}"><details open>'
        f"<summary><h2>{escape(title)}</h2></summary>{link}{inner}</details></section>"
    )


def data_heading(name: str) -> str:
    """Return the name of a data set above its part of a section; nothing without one."""
    return f'<p class="data">{escape(name)}</p>' if name else ""


def breakable(name: str) -> str:
    """Escape a name that may break after a comma or colon, not between a word and its number.

    >>> breakable("sgd:lr=0.1, seed 2"), breakable("1,000 examples")
    ('sgd:<wbr>lr=0.1,<wbr> seed&nbsp;2', '1,000 examples')
    """
    kept = re.sub(r"(\w) (\d)", r"\1&nbsp;\2", escape(name))
    return re.sub(r"([,:])(?!\d{3}\b)", r"\1<wbr>", kept)
