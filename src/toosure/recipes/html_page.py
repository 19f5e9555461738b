"""The outcome of a recipe as one offline HTML page: claims, then figures and tables by part."""

from html import escape

from toosure.page.html import figure, page, section
from toosure.page.tables import table
from toosure.recipes.recipe import Drawing, Table
from toosure.recipes.reproduce import Outcome
from toosure.recipes.results import CLAIM_HEADER, claim_cells, claims_summary


def recipe_page(outcome: Outcome) -> str:
    """Return the page. Needs Plotly."""
    recipe = outcome.recipe
    headline, _, rest = claims_summary(outcome).partition("; ")
    summary = (
        f'<header id="summary"><p class="source">toosure · {escape(recipe.reference)}</p>'
        f"<h1>{escape(recipe.title)}: {headline}</h1><p>{rest}.</p></header>"
    )
    claims = table(CLAIM_HEADER, map(claim_cells, outcome.claims))
    body = [summary, section("Claims", "", claims)]

    for name, findings in outcome.findings.items():
        figures = map(figure_block, outcome.drawings[name])
        tables = map(table_block, findings.tables)
        title = f"{name}: {recipe.part(name).summary}"
        body.append(section(title, "", *figures, *tables, name=name))

    if outcome.problems:
        rows = sorted(outcome.problems.items())
        body.append(section("Runs that are missing or ended early", "", table(("run", ""), rows)))

    return page(f"{recipe.title} – toosure reproduce", "\n".join(body))


def table_block(content: Table) -> str:
    """Return a table with its title and note."""
    note = f"<p>{escape(content.note)}</p>" if content.note else ""
    return f"<h3>{escape(content.title)}</h3>{note}{table(content.header, content.rows)}"


def figure_block(content: Drawing) -> str:
    """Return a figure under a name; `recipes/pictures.py` finds it by `data-name`."""
    text = figure(content.draw(), content.title, content.note, heading="h3")
    return text.replace("<div ", f'<div data-name="{escape(content.name)}" ', 1)
