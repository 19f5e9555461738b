"""The page of `toosure report`: every section, for the runs of a folder, in one file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from toosure.page.html import page
from toosure.page.page_runs import PageRuns
from toosure.page.run_verdict import headline, judge
from toosure.page.sections import SECTIONS
from toosure.runs import Run, find_runs
from toosure.runs.regular_files import printable

SCRIPTS = ("runs.js",)


def report(folder: str | Path) -> str:
    """Return the self-contained page of all runs in a folder, as HTML.

    Reads run folders without torch. Raises ValueError where there is no run.
    """
    runs = find_runs(folder)
    if not runs:
        raise ValueError(f"there are no runs in {folder}: make one with `toosure train`")
    return report_of(runs, printable(str(folder)))


def report_of(runs: Sequence[Run], source: str) -> str:
    """Return the self-contained page of runs that were read; `source` is what to call them."""
    return page(title_of(runs, source), body(runs, source), more=SCRIPTS)


def title_of(runs: Sequence[Run], source: str) -> str:
    return f"{headline([judge(run) for run in runs])[1]} – {source}"


def body(runs: Sequence[Run], source: str) -> str:
    """Return everything inside the page: one section after another."""
    page_runs = PageRuns(runs, source)
    with np.errstate(all="ignore"):  # rows may hold any number: what overflows is not drawn
        return "\n".join([*(section.make(page_runs) for section in SECTIONS), footer()])


def footer() -> str:
    return (
        "<footer><p>The gap is mean confidence minus accuracy. A run is called over- or "
        "under-confident when the 95&nbsp;% interval of its last gap leaves out 0, well calibrated "
        "when the gap is known to one point or better; otherwise it cannot be told. “Since” is the "
        "step from which on the gap stayed outside that interval. Points are "
        "percentage points.</p></footer>"
    )
