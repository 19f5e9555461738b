"""An outcome as one offline page: claims, then each part with its figures and tables."""

from html import escape

from toosure.page.html import figure, page, section, table
from toosure.recipes.recipe import Drawing, Table
from toosure.recipes.reproduce import Outcome
from toosure.recipes.results import CLAIM_HEADER, cells, score


def recipe_page(outcome: Outcome) -> str:
    """Return the page. Needs Plotly."""
    recipe = outcome.recipe
    held, _, rest = score(outcome).partition("; ")
    head = (
        f'<header id="summary"><p class="source">toosure · {escape(recipe.reference)}</p>'
        f"<h1>{escape(recipe.title)}: {held}</h1><p>{rest}.</p></header>"
    )
    body = [head, section("Claims", "", table(CLAIM_HEADER, map(cells, outcome.claims)))]
    for name, found in outcome.findings.items():
        blocks = [*map(block, outcome.drawings[name]), *map(laid_out, found.tables)]
        body.append(section(f"{name}: {recipe.part(name).says}", "", *blocks, name=name))
    if outcome.ill:
        rows = sorted(outcome.ill.items())
        body.append(section("Runs that are missing or ended early", "", table(("run", ""), rows)))
    return page(f"{recipe.title} – toosure reproduce", "\n".join(body))


def laid_out(made: Table) -> str:
    """Return a table with its title and note."""
    note = f"<p>{escape(made.note)}</p>" if made.note else ""
    return f"<h3>{escape(made.title)}</h3>{note}{table(made.header, made.rows)}"


def block(made: Drawing) -> str:
    """Return a figure as tall as it was drawn, named for those who look for it."""
    drawing = made.draw()
    height = drawing.layout.height or 430
    text = figure(drawing, made.title, made.note, heading="h3")
    return text.replace(
        '<div class="plot"', f'<div data-name="{escape(made.name)}" style="height:{height}px" '
        'class="plot"', 1,
    )  # fmt: skip
