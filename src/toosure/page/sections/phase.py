"""Calibration error against sharpness: the path of each run, and their correlation."""

from html import escape

from toosure.figures import correlation
from toosure.figures.phase import paired
from toosure.figures.style import PALETTE
from toosure.page.criteria import criterion_note
from toosure.page.html import FIGURE_TOOLS, breakable, plot, section
from toosure.page.page_runs import PageRuns
from toosure.page.tables import Cell, HtmlCell, mean_cell, table

CHOICE = (
    '<div class="controls"><span class="choice" role="group" aria-label="data" '
    'data-choice="phase"><button type="button" data-value="train">training</button>'
    '<button type="button" data-value="val">validation</button></span></div>'
)


def phase(page: PageRuns) -> str:
    """Return ECE against sharpness, and their correlations; nothing if there is no sharpness."""
    if not any(paired(run, split) for run in page.runs for split in ("train", "val")):
        return ""

    path = "Each path is a run" if len(page.runs) > 1 else "The path of the run"
    note = (
        f"{path}, a dot its start, a cross its end. Beside it, how closely the two go together "
        "over the rows of a run: by value (Pearson) and by rank (Spearman)."
    )
    if differing := criterion_note(page.runs, ["gn_sharpness"]):
        note = f"{note} {differing}"
    drawing = plot(None, "ECE against sharpness", role="phase")
    choice = "" if page.training_only else CHOICE
    figure = f"<figure>{choice}{drawing}{FIGURE_TOOLS}</figure>"
    return section(
        "Calibration against sharpness",
        note,
        f'<div class="pair portrait">{figure}{correlations(page)}</div>',
        name="phase",
        short="Sharpness",
    )


def correlations(page: PageRuns) -> str:
    """Return Pearson's and the rank correlation of ECE with sharpness, mean ± std over seeds."""
    splits = ("train",) if page.training_only else ("train", "val")
    rows: list[list[Cell]] = []
    for group in page.groups:
        place = page.places[group.label] % len(PALETTE)
        swatch = f'<i class="swatch c{place}"></i>{breakable(group.label)}'
        cells: list[Cell] = [HtmlCell.of(swatch, group.label)]
        for split in splits:
            pairs = [c for run in group.runs if (c := correlation(run, split))]
            cells.append(mean_cell([pair.pearson for pair in pairs], "+.2f"))
            cells.append(mean_cell([pair.rank for pair in pairs], "+.2f"))
        rows.append(cells)
    header = ["run", *(f"{split}, {what}" for split in splits for what in ("Pearson", "rank"))]
    attributes = [f'data-label="{escape(group.label)}"' for group in page.groups]
    content = table(header, rows, sortable=True, attributes=attributes)
    return f'<div id="correlations">{content}</div>'
