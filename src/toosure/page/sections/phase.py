"""Calibration error against sharpness: the path of each run, and how closely the two go."""

from collections.abc import Sequence

import numpy as np

from toosure.figures import correlation
from toosure.figures.phase import paired
from toosure.page.html import FIGURE_TOOLS, plot, section
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.tables import Cell, NumberCell, table

CHOICE = (
    '<div class="controls"><span class="choice" role="group" aria-label="data" '
    'data-choice="phase"><button type="button" data-value="train">training</button>'
    '<button type="button" data-value="val">validation</button></span></div>'
)


def phase(page: PageRuns) -> str:
    """Return ECE against sharpness, and their correlations; nothing where there is no sharpness."""
    if not any(paired(run, split) for run in page.runs for split in ("train", "val")):
        return ""

    path = "Each path is a run" if len(page.runs) > 1 else "The path of the run"
    note = (
        f"{path}, a dot its start, a cross its end. Beside it, how closely the two go together "
        "over the rows of a run: by value (Pearson) and by rank (Spearman)."
    )
    drawing = plot(None, "ECE against sharpness", role="phase")
    figure = f"<figure>{CHOICE}{drawing}{FIGURE_TOOLS}</figure>"
    return section(
        "Calibration against sharpness",
        note,
        f'<div class="pair portrait">{figure}{correlations(page)}</div>',
        name="phase",
        short="Sharpness",
    )


def correlations(page: PageRuns) -> str:
    """Return Pearson's and the rank correlation of ECE with sharpness, mean ± std over seeds."""
    rows: list[list[Cell]] = []
    for group in page.groups:
        cells: list[Cell] = [group.label]
        for split in ("train", "val"):
            pairs = [c for run in group.runs if (c := correlation(run, split))]
            cells.append(mean_and_spread([pair.pearson for pair in pairs]))
            cells.append(mean_and_spread([pair.rank for pair in pairs]))
        rows.append(cells)
    header = ("run", "train, Pearson", "train, rank", "val, Pearson", "val, rank")
    return f'<div id="correlations">{table(header, rows, sortable=True)}</div>'


def mean_and_spread(values: Sequence[float]) -> NumberCell:
    if not values:
        return NumberCell(None, "–")
    mean = float(np.mean(values))
    note = f"± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return NumberCell(mean, printed(mean, "+.2f"), note)
