"""The outcome of a recipe as one offline HTML page: claims, then figures and tables by part."""

import re
from collections.abc import Sequence
from html import escape

from toosure.page.html import breakable, figure, page, prose, section
from toosure.page.tables import HtmlCell, table
from toosure.recipes.recipe import Claim, Drawing, Table
from toosure.recipes.reproduce import Outcome
from toosure.recipes.results import claims_laid_out, claims_summary


def recipe_page(outcome: Outcome) -> str:
    """Return the page. Needs Plotly."""
    recipe = outcome.recipe
    headline, _, rest = claims_summary(outcome).partition("; ")
    summary = (
        f'<header id="summary"><p class="source">toosure · {escape(recipe.reference)}</p>'
        f"<h1>{escape(recipe.title)}: {headline}</h1><p>{rest[:1].upper()}{rest[1:]}.</p></header>"
    )
    body = [summary, section("Claims", "", claims_block(outcome.claims))]

    for name, findings in outcome.findings.items():
        figures = map(figure_block, outcome.drawings[name])
        tables = map(table_block, findings.tables)
        title = f"{name}: {recipe.part(name).summary}"
        body.append(section(title, "", *figures, *tables, name=name))

    if outcome.problems:
        rows = sorted(outcome.problems.items())
        body.append(section("Runs that are missing or ended early", "", table(("run", ""), rows)))

    return page(f"{recipe.title} – toosure reproduce", "\n".join(body))


def claims_block(claims: Sequence[Claim]) -> str:
    """Return every claim as a row; what failed stands out."""
    header, rows = claims_laid_out(claims)
    verdict = header.index("verdict")
    cells = [[text_cell(text) for text in row] for row in rows]
    for claim, row in zip(claims, cells, strict=True):
        if claim.passed is False:
            row[verdict] = HtmlCell.of(f"<strong>{claim.verdict}</strong>", claim.verdict)
    return table(header, cells)


def table_block(content: Table) -> str:
    """Return a table with its title and note."""
    note = f"<p>{prose(content.note)}</p>" if content.note else ""
    cells = [[text_cell(text) for text in row] for row in content.rows]
    return f"<h3>{escape(content.title)}</h3>{note}{table(content.header, cells)}"


def text_cell(text: str) -> HtmlCell:
    """Return a cell: `words` are code, and a number stays on one line with its spread.

    >>> text_cell("SGD (`sgd`)"), text_cell("74.04 ± 0.35")
    ('SGD (<code>sgd</code>)', '74.04&nbsp;±&nbsp;0.35')
    """
    html = breakable(text).replace(" ± ", "&nbsp;±&nbsp;")
    return HtmlCell.of(re.sub("`([^`]+)`", r"<code>\1</code>", html), text)


def figure_block(content: Drawing) -> str:
    """Return a figure under a name; `recipes/pictures.py` finds it by `data-name`."""
    text = figure(content.draw(), content.title, content.note, heading="h3")
    return text.replace("<div ", f'<div data-name="{escape(content.name)}" ', 1)
