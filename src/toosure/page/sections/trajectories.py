"""Every quantity along training: one panel each, on linked axes."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from toosure.figures import Group, panel_keys, stability, trajectory
from toosure.figures.style import PALETTE
from toosure.page.html import plot, prose, section
from toosure.page.page_runs import PageRuns
from toosure.quantities import described
from toosure.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_POINTS = 300_000  # on one page: about 11 bytes each
MAX_SHOWN = len(PALETTE)  # groups drawn at first
MAX_UNFOLDED = 12
REFINEMENT = "val/refinement"
EDGE = (
    "Dashed in the sharpness panel: 2/lr, or (2 + 2β)/lr with momentum β, beyond which gradient "
    "descent is unstable; only SGD and GD have one. "
)
CHOICES = (
    ("data", "split", {"both": "both", "val": "validation", "train": "training"}),
    ("scale", "scale", {"log": "log", "linear": "linear"}),
    ("steps", "steps", {"linear": "steps", "log": "log steps"}),
)


def trajectories(page: PageRuns) -> str:
    """Return the controls and one panel per quantity, on linked axes."""
    runs = page.runs
    keys = panel_keys(runs)
    points = max(100, min(1000, MAX_POINTS // (2 * (len(keys) + 1) * max(1, len(runs)))))
    panels = "".join(panel(runs, key, points) for key in keys)

    has_edge = "gn_sharpness" in keys and any(stability(run) is not None for run in runs)
    note = (
        f"Solid lines are validation, dotted ones training data. {EDGE * has_edge}Drag to zoom all "
        "panels, double-click to go back."
    )
    return section(
        "Along training",
        note,
        legend(page.groups),
        controls(),
        f'<div class="panels">{panels}</div>',
        refinement(page),
        name="trajectories",
    )


def panel(runs: Sequence[Run], key: str, points: int) -> str:
    """Return one panel under the name of its quantity; what it means is a tooltip."""
    quantity = described(key)
    drawing = plot(single(runs, key, points), quantity.title, quantity.says, role=key)
    heading = f'<h3 title="{escape(quantity.says)}">{prose(quantity.title)}</h3>'
    return f"<figure>{heading}{drawing}</figure>"


def single(runs: Sequence[Run], key: str, points: int) -> "Figure":
    """Return the figure of one quantity, without the legend that the page has for all."""
    return trajectory(runs, [key], points=points).update_layout(
        showlegend=False,
        margin={"l": 62, "r": 8, "t": 6, "b": 40},
        yaxis={"automargin": False, "title": {"standoff": 6}},
    )


def refinement(page: PageRuns) -> str:
    """Say when each run was at its best before calibration; nothing where none was measured."""
    sentences = [best_moment(name, run) for name, run in page.named if run.has(REFINEMENT)]
    if not sentences:
        return ""
    items = "".join(f"<li>{prose(sentence)}</li>" for sentence in sentences)
    inner = f"<ul>{items}</ul>"
    if len(sentences) > MAX_UNFOLDED:
        inner = f"<details><summary>when each run was at its best</summary>{inner}</details>"
    return f'<div id="refinement">{inner}</div>'


def best_moment(name: str, run: Run) -> str:
    """Name the step of the lowest NLL after temperature scaling, and what it became."""
    values = run.columns[REFINEMENT]
    steps = run.columns["step"]
    known = np.flatnonzero(np.isfinite(values))
    best = known[values[known].argmin()]
    last = known[-1]
    after = f"; {values[last]:.3f} at step {steps[last]:,.0f}" if best != last else ", its last row"
    return (
        f"{name}: best before calibration at step {steps[best]:,.0f}, with an NLL of "
        f"{values[best]:.3f} after its temperature{after}."
    )


def legend(groups: Sequence[Group]) -> str:
    """Return one button per group: its colour and name; a press shows or hides it everywhere."""
    chips = "".join(
        f'<button type="button" class="chip c{i % len(PALETTE)}" data-group="{i}" '
        f'data-label="{escape(group.label)}" aria-pressed="{str(i < MAX_SHOWN).lower()}">'
        f"<i></i>{escape(group.label)}</button>"
        for i, group in enumerate(groups)
    )
    return f'<div class="legend" role="group" aria-label="runs shown">{chips}</div>'


def controls() -> str:
    """Return the choices of what is drawn and how."""
    groups = []
    for name, key, options in CHOICES:
        buttons = "".join(
            f'<button type="button" data-value="{value}">{text}</button>'
            for value, text in options.items()
        )
        groups.append(
            f'<span class="choice" role="group" aria-label="{name}" data-choice="{key}">'
            f"{buttons}</span>"
        )
    return f'<div class="controls">{"".join(groups)}</div>'
