"""Every quantity along training: one panel each, on linked axes."""

from collections.abc import Sequence
from html import escape

import numpy as np

from toosure.figures.style import PALETTE
from toosure.figures.trajectory import drawn_edge
from toosure.page.criteria import criterion_note
from toosure.page.html import FIGURE_TOOLS, plot, prose, section, term
from toosure.page.line_data import line_script
from toosure.page.page_runs import PageRuns
from toosure.quantities import described
from toosure.runs import Run

MAX_SHOWN = len(PALETTE)  # groups drawn at first
MAX_UNFOLDED = 12
REFINEMENT = "val/refinement"
EDGE = (
    "Dashed in the sharpness panel: 2/lr, or (2 + 2β)/lr with momentum β, beyond which gradient "
    "descent is unstable; only SGD and GD have one. "
)
CHOICES: Sequence[tuple[str, str, dict[str, str]]] = (
    ("data", "split", {"val": "validation", "both": "with training", "train": "training"}),
    ("seeds", "seeds", {"band": "band over seeds", "each": "each seed"}),
    ("scale", "scale", {"log": "log", "linear": "linear"}),
    ("steps", "steps", {"linear": "steps", "log": "log steps"}),
)


def trajectories(page: PageRuns) -> str:
    """Return the controls and one panel per quantity, on linked axes."""
    keys = page.panel_keys
    panels = "".join(map(panel, keys))
    has_edge = any(drawn_edge(run) is not None for run in page.runs)
    edge = EDGE if "gn_sharpness" in keys and has_edge else ""
    differing = criterion_note(page.runs, keys)
    own_loss = f"{differing} " if differing else ""
    what = "all runs" if len(page.runs) > 1 else "all numbers"

    note = (
        f"{data_sentence(page)} {edge}{own_loss}Point at a panel, or move with the "
        f"arrow keys, to read {what} at one step; drag to zoom all panels, double-click or press "
        "0 to go back."
    )

    return section(
        "Along training",
        note,
        f'<div class="bar">{legend(page)}{controls(page)}</div>',
        f'<div class="panels">{panels}</div>',
        refinement(page),
        line_script(page),
        name="trajectories",
    )


def data_sentence(page: PageRuns) -> str:
    """Say which data the lines are of."""
    if not page.training_only:
        return "Validation data; training data are dotted."
    if all(run.split == "train" for run in page.runs):
        return "Training data, dotted: no run has validation data."
    return "Validation data, but they are the training data; training data are dotted."


def panel(key: str) -> str:
    """Return one panel under the name of its quantity, which says what it means."""
    quantity = described(key)
    drawing = plot(None, quantity.title, quantity.says, kind="linked", role=key)
    unit = f", <small>{escape(quantity.unit)}</small>" if quantity.unit else ""
    name = f"<h3>{term(quantity, quantity.title)}{unit}</h3>"
    return f"<figure>{name}{drawing}{FIGURE_TOOLS}</figure>"


def refinement(page: PageRuns) -> str:
    """Return when each run was best before calibration; empty if it was not measured."""
    sentences = [best_moment(name, run) for name, run in page.named if run.has(REFINEMENT)]
    if not sentences:
        return ""
    items = "".join(f"<li>{prose(sentence)}</li>" for sentence in sentences)
    inner = f"<ul>{items}</ul>"
    if len(sentences) > MAX_UNFOLDED:
        inner = f"<details><summary>when each run was at its best</summary>{inner}</details>"
    return f'<div id="refinement">{inner}</div>'


def best_moment(name: str, run: Run) -> str:
    """Return the step of the lowest NLL after its best temperature, and the final value."""
    values = run.columns[REFINEMENT]
    steps = run.columns["step"]
    known = np.flatnonzero(np.isfinite(values))
    best = known[values[known].argmin()]
    last = known[-1]
    if best == last:
        return f"{name}: best at its last row, with an NLL of {values[best]:.3f} once calibrated."
    return (
        f"{name}: best at step {steps[best]:,.0f}, with an NLL of {values[best]:.3f} once "
        f"calibrated; {values[last]:.3f} at step {steps[last]:,.0f}."
    )


def legend(page: PageRuns) -> str:
    """Return one button per setting, its colour and name; a press shows or hides it everywhere.

    If there are many, the first six of the ranking are shown, and the other buttons on request.
    """
    chips = "".join(
        f'<button type="button" class="chip" data-group="{i}" data-label="{escape(group.label)}" '
        f'aria-pressed="{str(i < MAX_SHOWN).lower()}">'
        f'<i class="c{page.places[group.label] % len(PALETTE)}"></i>{escape(group.label)}</button>'
        for i, group in enumerate(page.groups)
    )

    sets = ""
    more = ""
    few = ""
    if len(page.groups) > MAX_SHOWN:
        sets = (
            '<span class="choice" role="group" aria-label="settings" id="sets">'
            '<button type="button" data-set="best">best six</button>'
            '<button type="button" data-set="all">all</button>'
            '<button type="button" data-set="none">none</button></span>'
        )
        more = (
            '<button type="button" class="plain" id="more-settings" aria-expanded="false">'
            "more settings</button>"
        )
        few = " few"

    return (
        f'{sets}<div class="legend{few}" role="group" aria-label="settings shown">{chips}{more}'
        "</div>"
    )


def controls(page: PageRuns) -> str:
    """Return the controls for what is drawn and how."""
    has_seeds = any(len(group.runs) > 1 for group in page.groups)
    groups = []
    for name, key, options in CHOICES:
        if key == "seeds" and not has_seeds:
            continue
        if key == "split" and page.training_only:  # there is nothing to choose
            continue

        buttons = "".join(
            f'<button type="button" data-value="{value}">{text}</button>'
            for value, text in options.items()
        )
        groups.append(
            f'<span class="choice" role="group" aria-label="{name}" data-choice="{key}">'
            f"{buttons}</span>"
        )
    return f'<div class="controls">{"".join(groups)}</div>'
