"""The page of `toosure report`: every section, for the runs of a folder, in one file."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from toosure.figures.style import PALETTE
from toosure.page.copies import without_copies
from toosure.page.decision import title_of
from toosure.page.html import page
from toosure.page.page_runs import PageRuns
from toosure.page.sections import SECTIONS
from toosure.runs import Run, find_runs
from toosure.runs.read_together import read_together
from toosure.runs.regular_files import printable, read_regular
from toosure.runs.storage import as_given

SCRIPTS = ("panels.js", "runs.js", "moments.js")
MAX_CONCLUSION = 600  # characters


def report(folder: str | Path) -> str:
    """Return the self-contained page of all runs in a folder, as HTML.

    Reads run folders without torch. Raises ValueError if there is no run.
    """
    return html_of(runs_of_page(folder))


def runs_of_page(folder: str | Path) -> PageRuns:
    """Read the runs of a folder; ValueError if there is none."""
    runs = find_runs(folder)
    if not runs:
        raise ValueError(f"there are no runs in {as_given(folder)}: make one with `toosure train`")
    read_together(runs)
    counted, left_out = without_copies(runs)
    source = printable(as_given(folder))
    return PageRuns(counted, source, conclusion_of(counted), left_out=left_out)


def html_of(page_runs: PageRuns) -> str:
    """Return the self-contained page of runs that were read."""
    return page(page_title(page_runs), body(page_runs), more=SCRIPTS)


def conclusion_of(runs: Sequence[Run]) -> str:
    """Return the conclusion of the author of the runs: `conclusion.txt` beside their folders."""
    folders = {run.path.parent for run in runs}
    if len(folders) != 1:
        return ""
    try:
        content = read_regular(folders.pop() / "conclusion.txt", MAX_CONCLUSION * 4, False)
    except (OSError, ValueError):
        return ""
    text = content.decode("utf-8", errors="replace")
    return printable(" ".join(text.split())[:MAX_CONCLUSION])


def page_title(page_runs: PageRuns) -> str:
    return f"{title_of(page_runs)} – {page_runs.source}"


def body(page_runs: PageRuns) -> str:
    """Return everything inside the page: the contents, then one section after another."""
    with np.errstate(all="ignore"):  # rows may hold any number; infinite values are not drawn
        sections = [section.make(page_runs) for section in SECTIONS]
    return "\n".join([contents(sections, len(page_runs.groups)), *sections, footer()])


def contents(sections: Sequence[str], settings: int) -> str:
    """Return the bar of contents: links to sections, and a filter if there are many settings."""
    titles = (re.match(r'<section id="(\w+)" data-title="([^"]*)"', text) for text in sections)
    links = "".join(f'<a href="#{name[1]}">{name[2]}</a>' for name in titles if name)

    search_box = ""
    if settings > len(PALETTE):
        search_box = (
            '<label class="filter">filter <input type="search" id="sought" '
            'placeholder="lr=0.1 csam" aria-describedby="sought-count"></label>'
            '<span id="sought-count" role="status"></span>'
        )
    return (
        f'<nav id="contents" aria-label="contents"><div class="links"><a href="#summary">Decision'
        f"</a>{links}</div>{search_box}</nav>"
    )


def footer() -> str:
    """Return how the verdict on a run is reached."""
    return (
        "<footer><p>The gap is mean confidence minus accuracy. A run is called over- or "
        "under-confident when the 95&nbsp;% interval of its last gap leaves out 0, well calibrated "
        "when the gap is known to one point or better; otherwise it cannot be told. “Since” is the "
        "step from which on the gap stayed outside that interval. Points are "
        "percentage points.</p></footer>"
    )
