"""The answers of the live page, as bytes, cached for each state of the folder."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from toosure.figures import panel_keys, stability
from toosure.figures.trajectory import NAMES, values_of
from toosure.page.copies import without_copies
from toosure.page.html import POLICY, in_script, page
from toosure.page.page_runs import PageRuns
from toosure.page.report import SCRIPTS, body, conclusion_of, html_of, page_title
from toosure.page.sections import SECTIONS
from toosure.page.sections.moments import frames
from toosure.runs import Run, RunFolder
from toosure.runs.regular_files import printable
from toosure.runs.storage import as_given

MAX_ROWS = 20_000  # of a run in one answer; the rest comes with the next
KEPT_FILES = ("temperature.json", "calibrators.json", "shifts.json", "predictions.npz")
MAX_NUMBERS = 2_000_000  # of all runs in one answer
Cursors = Mapping[str, tuple[int, int]]  # of each run: inode, number of rows that the client has


class PageAnswers:
    """The answers about a folder of runs; not safe for two threads at once."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = RunFolder(folder)
        self.source = printable(as_given(folder))
        self._kept: dict[str, tuple[object, bytes]] = {}
        self._state: tuple[object, dict[str, Any]] = (None, {})  # with the version it is of
        self._left_out: list[str] = []
        self._colours: dict[str, int] = {}  # of settings, by label: kept while the page is open

    def page(self) -> bytes:
        """Return the current page, which then asks for updates."""
        return self._once("page", self._page)

    def body(self) -> bytes:
        """Return all sections, for when runs came or went."""
        return self._once("body", self._body)

    def sections(self) -> bytes:
        """Return the sections of words and numbers, and the snapshots of the slider."""
        return self._once("sections", self._sections)

    def report(self) -> bytes:
        """Return the report, to be saved; empty if there is no run."""
        return self._once("report", lambda runs: html_of(self._page_runs(runs)) if runs else "")

    def rows(self, cursors: Cursors) -> bytes:
        """Return the rows after the client's cursors, in the units of the panels."""
        runs = self._refresh()
        new: dict[str, Any] = {}
        numbers = 0
        for run in runs:
            if is_behind(run, cursors) and numbers < MAX_NUMBERS:
                new[run.id] = new_rows(run, cursors[run.id][1])
                numbers += sum(map(len, new[run.id]["columns"].values()))
        return as_json({"runs": new} | self.state(runs)).encode()

    def state(self, runs: Sequence[Run]) -> dict[str, Any]:
        """Return the state of the folder, computed once for each of its versions."""
        version = version_of(runs), tuple(self._left_out)
        if self._state[0] != version:
            self._state = version, state_of(runs, self._left_out)
        return self._state[1]

    def _refresh(self) -> list[Run]:
        """Read what is new in the folder; return its runs without copies."""
        runs, self._left_out = without_copies(self.folder.refresh())
        return runs

    def _once(self, name: str, make: Callable[[Sequence[Run]], str]) -> bytes:
        """Return the cached answer, unless the folder has changed since."""
        runs = self._refresh()
        version = version_of(runs), tuple(self._left_out)
        kept = self._kept.get(name)
        if kept is None or kept[0] != version:
            kept = version, make(runs).encode()
            self._kept[name] = kept
        return kept[1]

    def _page(self, runs: Sequence[Run]) -> str:
        """Return the whole page, which asks for new rows from here on."""
        page_runs = self._page_runs(runs)
        start = {"cursors": cursors_of(runs), "verdicts": verdicts_of(page_runs)}
        known = in_script(as_json(self.state(runs) | start))
        script = f'<script type="application/json" id="cursors">{known}</script>'

        bar = (
            '<div id="bar"><span id="pulse"></span><span id="said" role="status">…</span>'
            '<a id="save" class="plain" download="report.html" href="report">save as report</a>'
            '</div><ul id="alerts" class="alerts" role="alert" hidden></ul>'
        )
        inner = f'{bar}<div id="all">{self._inside(page_runs)}</div>'
        policy = f"{POLICY}; connect-src 'self'"
        return page(
            live_title(page_runs), inner + script, more=(*SCRIPTS, "live.js"), policy=policy
        )

    def _body(self, runs: Sequence[Run]) -> str:
        """Return all sections as JSON."""
        page_runs = self._page_runs(runs)
        answer = {"title": live_title(page_runs), "html": self._inside(page_runs)}
        return as_json(answer | {"cursors": cursors_of(runs)} | self.state(runs))

    def _sections(self, runs: Sequence[Run]) -> str:
        """Return as JSON the sections that are replaced when runs grow, and their snapshots."""
        page_runs = self._page_runs(runs)
        title = live_title(page_runs)
        if not runs:
            return as_json({"title": title, "html": {}, "frames": [], "verdicts": {}})

        snapshots = frames(page_runs)  # first, because damage found here is among the warnings
        with np.errstate(all="ignore"):
            html = {
                name: make(page_runs)
                for section in SECTIONS
                for name, make in section.replaced().items()
            }

        answer = {"title": title, "html": html, "frames": snapshots}
        return as_json(answer | {"verdicts": verdicts_of(page_runs)})

    def _page_runs(self, runs: Sequence[Run]) -> PageRuns:
        """Return the runs of a page with the colours of the previous one."""
        conclusion = conclusion_of(runs)
        page_runs = PageRuns(runs, self.source, conclusion, self._colours, left_out=self._left_out)
        self._colours = page_runs.places
        return page_runs

    def _inside(self, page_runs: PageRuns) -> str:
        """Return the body of the page, or a note that it waits for runs."""
        if page_runs.runs:
            return body(page_runs)
        return (
            f'<header><p class="source">toosure · {escape(self.source)}</p>'
            "<h1>Waiting for the first run</h1></header>"
        )


def live_title(page_runs: PageRuns) -> str:
    return page_title(page_runs) if page_runs.runs else "toosure live"


def verdicts_of(page_runs: PageRuns) -> dict[str, list[str]]:
    """Return the name, status, kind and sentence of each run, for the page to announce changes."""
    names = {run.id: name for name, run in page_runs.named}
    return {
        run.id: [names[run.id], run.status, verdict.kind, verdict.sentence]
        for run in page_runs.runs
        for verdict in [page_runs.verdicts[run.id]]
    }


def version_of(runs: Sequence[Run]) -> tuple[object, ...]:
    """Return a key that changes with anything that the page shows."""
    return tuple(run.version for run in runs)


def is_behind(run: Run, known: Cursors) -> bool:
    return run.id in known and 0 <= known[run.id][1] < run.count


def new_rows(run: Run, start: int) -> dict[str, Any]:
    """Return the rows of a run from `start` on: one column per line on the page."""
    end = min(run.count, start + MAX_ROWS)
    lines = {
        f"{split}/{key}": values
        for split in NAMES
        for key in panel_keys([run])
        if (values := values_of(run, split, key)) is not None
    }

    edge = stability(run)
    if edge is not None:
        lines["stability"] = edge
    lines["step"] = run.columns["step"]
    columns = {key: rounded(values[start:end]) for key, values in lines.items()}
    return {"cursor": [run.file_version[0], end], "columns": columns}


def rounded(values: np.ndarray) -> list[float | None]:
    """Return numbers for JSON, to six digits; None for NaN and infinity."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]


def cursors_of(runs: Sequence[Run]) -> dict[str, tuple[int, int]]:
    return {run.id: (run.file_version[0], run.count) for run in runs}


def state_of(runs: Sequence[Run], left_out: Sequence[str]) -> dict[str, Any]:
    """Return the state of a folder: digests of files and of statuses, and the number of runs.

    What is said of copies that are left out is of the first digest.

    The page reloads everything if the first digest changes, and its sections if the second does.
    """
    files = [(run.id, *run.file_version, measured(run), kept_files(run)) for run in runs]
    statuses = [(run.id, run.status, run.count, len(run.snapshots)) for run in runs]
    return {
        "structure": digest([*files, *left_out]),
        "stamp": digest(statuses),
        "running": sum(status == "running" for _, status, *_ in statuses),
        "total": len(runs),
    }


def measured(run: Run) -> list[str]:
    """Return the keys under which a run has numbers."""
    return sorted(key for key in run.columns if run.has(key))


def kept_files(run: Run) -> list[str]:
    return [name for name in KEPT_FILES if (run.path / name).is_file()]


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def as_json(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
