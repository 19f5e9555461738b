"""Calibration error against sharpness: the path of each run, and how closely the two go."""

from collections.abc import Sequence

import numpy as np

from toosure.figures import correlation, phase_portrait
from toosure.page.html import Cell, Shown, plot, printed, section, table
from toosure.page.page_runs import PageRuns

MAX_POINTS = 300_000
CHOICE = (
    '<div class="controls"><span class="choice" role="group" aria-label="data" '
    'data-choice="phase"><button type="button" data-value="train">training</button>'
    '<button type="button" data-value="val">validation</button></span></div>'
)


def phase(page: PageRuns) -> str:
    """Return ECE against sharpness, and their correlations; nothing where there is no sharpness."""
    points = max(100, min(1000, MAX_POINTS // (8 * max(1, len(page.runs)))))
    drawing = phase_portrait(page.runs, ("train", "val"), points)
    if not drawing.data:
        return ""

    note = (
        "Each path is a run, a dot its start, a cross its end. Beside it, how closely the two go "
        "together over the rows of a run: by value (Pearson) and by rank (Spearman)."
    )
    figure = f"<figure>{CHOICE}{plot(drawing, 'ECE against sharpness', role='phase')}</figure>"
    return section(
        "Calibration against sharpness",
        note,
        f'<div class="pair portrait">{figure}{correlations(page)}</div>',
        name="phase",
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


def mean_and_spread(values: Sequence[float]) -> Shown:
    if not values:
        return Shown(None, "–")
    mean = float(np.mean(values))
    note = f"± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return Shown(mean, printed(mean, "+.2f"), note)
