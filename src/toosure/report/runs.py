"""The page of `toosure report` and `toosure live`: verdicts, comparison, trajectories, moments."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from toosure.figures import PANELS, Group, group_runs, phase_portrait, trajectory
from toosure.figures.groups import name_of
from toosure.figures.style import PALETTE
from toosure.figures.trajectory import has_panel, stability
from toosure.report.compare import comparison, correlations
from toosure.report.follow import FollowedRun, follow
from toosure.report.judge import headline, judge
from toosure.report.moments import moments
from toosure.report.page import page, plot, prose, section
from toosure.report.posthoc import calibrators
from toosure.report.provenance import certificates, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 300_000  # on one page: about 11 bytes each
SHOWN = len(PALETTE)  # groups drawn at first
FEW = 12  # verdicts that need no folding
SCRIPTS = ("runs.js",)
REFINEMENT = "val/refinement"


def report(folder: str | Path) -> str:
    """Return the self-contained page of all runs in a folder, as HTML.

    Reads run folders without torch. Raises ValueError where there is no run.
    """
    runs = follow(folder)
    if not runs:
        raise ValueError(f"there are no runs in {folder}: make one with `toosure train`")
    return report_of(runs, str(folder))


def report_of(runs: Sequence[FollowedRun], source: str) -> str:
    """Return the self-contained page of runs that were read; `source` is what to call them."""
    return page(title_of(runs, source), body(runs, source), more=SCRIPTS)


def title_of(runs: Sequence[FollowedRun], source: str) -> str:
    return f"{headline([judge(run) for run in runs])[1]} – {source}"


def body(runs: Sequence[FollowedRun], source: str) -> str:
    """Return everything inside the page."""
    groups = group_runs(runs)
    blocks = [
        summary(groups, source),
        comparison(groups),
        trajectories(groups, runs),
        phase(groups, runs),
        moments(groups),
        calibrators(groups),
        certificates(groups),
        provenance(groups),
        footer(),
    ]
    return "\n".join(blocks)


def summary(groups: Sequence[Group], source: str) -> str:
    """Return the verdict on all runs and a sentence on each."""
    named = [(name_of(run, group), judge(run)) for group in groups for run in group.runs]
    kind, sentence = headline([verdict for _, verdict in named])
    count = f"{len(named)} runs" if len(named) > 1 else named[0][0]
    items = "".join(
        f'<li><span class="who">{escape(name)}</span> '
        f'<span class="{verdict.kind}">{prose(verdict.sentence)}.</span></li>'
        for name, verdict in named
    )
    listed = f'<ul class="verdicts">{items}</ul>' if len(named) > 1 else ""
    if len(named) > FEW:
        listed = f"<details><summary>the verdict on each run</summary>{listed}</details>"
    return (
        f'<header id="summary"><p class="source">toosure · {escape(source)} · {escape(count)}</p>'
        f'<h1><span class="{kind}">{joined(sentence)}</span></h1>{listed}</header>'
    )


def joined(sentence: str) -> str:
    """Return a headline whose hyphens do not end a line."""
    return prose(sentence).replace("-confident", "-&NoBreak;confident")


def trajectories(groups: Sequence[Group], runs: Sequence[FollowedRun]) -> str:
    """Return the controls and a panel a quantity, on linked axes."""
    shown = {key: panel for key, panel in PANELS.items() if has_panel(runs, key)}
    points = max(100, min(1000, MOST_POINTS // (2 * (len(shown) + 1) * max(1, len(runs)))))
    panels = "".join(
        f"<figure><h3>{prose(panel.says)}</h3>"
        f"{plot(single(runs, key, points), panel.says, role=key)}</figure>"
        for key, panel in shown.items()
    )
    edge = (
        "Dashed in the sharpness panel: 2/lr, or (2 + 2β)/lr with momentum β, beyond which "
        "gradient descent is unstable; only SGD and GD have one. "
    )
    has_edge = "gn_sharpness" in shown and any(stability(run) is not None for run in runs)
    note = (
        f"Solid lines are validation, dotted ones training data. {edge * has_edge}Drag to zoom all "
        "panels, double-click to go back."
    )
    return section(
        "Along training",
        note,
        legend(groups),
        controls(),
        f'<div class="panels">{panels}</div>',
        refinement(groups),
        name="trajectories",
    )


def single(runs: Sequence[FollowedRun], key: str, points: int) -> "Figure":
    """Return the figure of one quantity, without the legend that the page has for all."""
    return trajectory(runs, [key], points=points).update_layout(
        showlegend=False,
        margin={"l": 62, "r": 8, "t": 6, "b": 40},
        yaxis={"automargin": False, "title": {"standoff": 6}},
    )


def refinement(groups: Sequence[Group]) -> str:
    """Say when each run was at its best before calibration; nothing where none was measured."""
    found = [(name_of(run, group), run) for group in groups for run in group.runs]
    items = [
        f"<li>{prose(best_moment(*each))}</li>" for each in found if REFINEMENT in each[1].columns
    ]
    if not items:
        return ""
    inner = f"<ul>{''.join(items)}</ul>"
    if len(items) > FEW:
        inner = f"<details><summary>when each run was at its best</summary>{inner}</details>"
    return f'<div id="refinement">{inner}</div>'


def best_moment(name: str, run: FollowedRun) -> str:
    """Name the step of the lowest NLL after temperature scaling, and what it became."""
    values, steps = run.columns[REFINEMENT], run.columns["step"]
    known = np.flatnonzero(np.isfinite(values))
    best, last = known[values[known].argmin()], known[-1]
    after = f"; {values[last]:.3f} at step {steps[last]:,.0f}" if best != last else ", its last row"
    return (
        f"{name}: best before calibration at step {steps[best]:,.0f}, with an NLL of "
        f"{values[best]:.3f} after its temperature{after}."
    )


def legend(groups: Sequence[Group]) -> str:
    """Return a button a group: its colour and name; a press shows or hides it everywhere."""
    chips = "".join(
        f'<button type="button" class="chip c{i % len(PALETTE)}" data-group="{i}" '
        f'data-label="{escape(group.label)}" aria-pressed="{str(i < SHOWN).lower()}">'
        f"<i></i>{escape(group.label)}</button>"
        for i, group in enumerate(groups)
    )
    return f'<div class="legend" role="group" aria-label="runs shown">{chips}</div>'


def controls() -> str:
    """Return the choices of what is drawn and how."""
    return (
        '<div class="controls">'
        + "".join(
            f'<span class="choice" role="group" aria-label="{name}" data-choice="{key}">'
            + "".join(
                f'<button type="button" data-value="{value}">{text}</button>'
                for value, text in options
            )
            + "</span>"
            for name, key, options in (
                (
                    "data",
                    "split",
                    (("both", "both"), ("val", "validation"), ("train", "training")),
                ),
                ("scale", "scale", (("log", "log"), ("linear", "linear"))),
                ("steps", "steps", (("linear", "steps"), ("log", "log steps"))),
            )
        )
        + "</div>"
    )


def phase(groups: Sequence[Group], runs: Sequence[FollowedRun]) -> str:
    """Return ECE against sharpness, and their correlations; nothing where there is no sharpness."""
    points = max(100, min(1000, MOST_POINTS // (8 * max(1, len(runs)))))
    drawing = phase_portrait(runs, ("train", "val"), points)
    if not drawing.data:
        return ""
    note = (
        "Each path is a run, a dot its start, a cross its end. Beside it, how closely the two go "
        "together over the rows of a run: by value (Pearson) and by rank (Spearman)."
    )
    figure = (
        '<figure><div class="controls"><span class="choice" role="group" aria-label="data" '
        'data-choice="phase"><button type="button" data-value="train">training</button>'
        '<button type="button" data-value="val">validation</button></span></div>'
        f"{plot(drawing, 'ECE against sharpness', role='phase')}</figure>"
    )
    return section(
        "Calibration against sharpness",
        note,
        f'<div class="pair portrait">{figure}{correlations(groups)}</div>',
        name="phase",
    )


def footer() -> str:
    return (
        "<footer><p>The gap is mean confidence minus accuracy. A run is called over- or "
        "under-confident when the 95&nbsp;% interval of its last gap leaves out 0, well calibrated "
        "when the gap is known to one point or better; otherwise it cannot be told. “Since” is the "
        "step from which on the gap stayed outside that interval. Points are "
        "percentage points.</p></footer>"
    )
