"""The progress of unfinished runs: steps, time left, rows per second, what is measured."""

import math
from html import escape

import numpy as np

from toosure.page.html import section
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.tables import Cell, HtmlCell, NumberCell, table
from toosure.quantities import QUANTITIES
from toosure.runs import Run
from toosure.sentences import every_steps

RECENT = 20  # rows from which the pace is taken
UNFINISHED = ("running", "interrupted", "stopped")
MAX_LISTED = 100


def progress(page: PageRuns) -> str:
    """Return the runs that have not ended; if all have, an empty element for later ones."""
    unfinished = [(name, run) for name, run in page.named if run.status in UNFINISHED]
    rows = [row_of(name, run) for name, run in unfinished]
    if not rows:
        return '<section id="progress" hidden></section>'
    header = ("run", "status", "progress", "time left", "rows per second", "measured", "command")
    goes_on = any(run.status == "running" for _, run in unfinished)
    note = "Pace and time left are those of the last rows, measuring included."
    listed = table(header, rows[:MAX_LISTED], sortable=True)
    return section("Going on" if goes_on else "Not finished", note, listed, name="progress")


def row_of(name: str, run: Run) -> list[Cell]:
    """Return the row of a run."""
    step = int(run.columns["step"][-1]) if run.count else 0
    total = run.config.get("steps")
    steps_per_second, rows_per_second = pace_of(run)

    bar = f"{step:,}"
    left = math.nan
    if isinstance(total, int) and total > 0:
        bar = (
            f'<progress max="{total}" value="{min(step, total)}" aria-label="{escape(name)}">'
            f"</progress> {step:,} of {total:,}"
        )
        if run.status == "running" and steps_per_second > 0:
            left = (total - step) / steps_per_second
    rate = NumberCell(rows_per_second, printed(rows_per_second, ".2g"))
    time_left = NumberCell(left, duration(left))
    progress_cell = HtmlCell.of(bar, step)
    return [name, run.status, progress_cell, time_left, rate, measured(run), command(run)]


def pace_of(run: Run) -> tuple[float, float]:
    """Return steps and rows per second over the last rows; NaN if unknown."""
    seconds = run.columns.get("seconds")
    if seconds is None or run.count < 2:
        return math.nan, math.nan
    steps = run.columns["step"][-RECENT:]
    seconds = seconds[-RECENT:]
    took = float(seconds[-1] - seconds[0])
    if not np.isfinite(took) or took <= 0:
        return math.nan, math.nan
    return float(steps[-1] - steps[0]) / took, (len(steps) - 1) / took


def measured(run: Run) -> str:
    """Return what the next row holds, and when it is due."""
    asked = run.config.get("measure")
    extra = [str(key) for key in asked] if isinstance(asked, list) else []
    names = [QUANTITIES[key].short if key in QUANTITIES else key for key in extra]
    what = ", ".join(["metrics", *names])
    every = run.config.get("every")
    return f"{what}, {every_steps(every)}" if isinstance(every, int) else what


def command(run: Run) -> Cell:
    """Return a button that copies the command of a run, with which it resumes or restarts."""
    typed = run.environment.get("command")
    if not isinstance(typed, str) or not typed:
        return "–"
    return HtmlCell.of(
        f'<button type="button" class="plain" data-do="copy-text" data-text="{escape(typed)}" '
        f'aria-label="copy the command of this run">copy</button>',
        typed,
    )


def duration(seconds: float) -> str:
    """Return a time as text, in its two largest units.

    >>> duration(75.0), duration(7320.0), duration(float("nan"))
    ('1 min 15 s', '2 h 2 min', '–')
    """
    if not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
