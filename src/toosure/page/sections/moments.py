"""The slider through training: three figures of one step, and their numbers."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from toosure.figures import (
    TOP_LABEL,
    Bins,
    bins_of,
    confidence_histogram,
    margin_histogram,
    probability_wording,
)
from toosure.figures import reliability_diagram as diagram
from toosure.page.html import FIGURE_TOOLS, in_script, plot, section
from toosure.page.page_runs import PageRuns
from toosure.runs import Run

MAX_SNAPSHOTS = 800  # snapshots on one page: about 1.3 kB each
TITLES = {
    "reliability": "Accuracy at each confidence",
    "confidence": "How often it is how sure",
    "margin": "How far from the border",
}
CLASS_ONE_TITLES = {
    "reliability": "How often class 1 is true at each P(class 1)",
    "confidence": "How often P(class 1) is how high",
}
WORDS = {  # what the figures of a run say: of the predicted class, or of P(class 1)
    "top": TOP_LABEL._asdict() | TITLES,
    "one": probability_wording("class 1")._asdict() | TITLES | CLASS_ONE_TITLES,
}


def word(name: str) -> str:
    """Return a placeholder that the scripts replace by the run's word."""
    return f'<span data-word="{name}">{escape(WORDS["top"][name])}</span>'


KEYS = {  # what the marks mean; the scripts put numbers into <b>
    "reliability": f'<span class="over">●</span> {word("over")} '
    f'<span class="under">◆</span> {word("under")} '
    '<span class="chance">■</span> within chance <span>╌ calibrated</span>',
    "confidence": f'<span class="right">■</span> {word("right")} '
    f'<span class="wrong">■</span> {word("wrong")} '
    f"<span>┊ {word('true')} <b></b></span> <span>│ claimed <b></b></span>",
    "margin": '<span class="right">■</span> right <span class="wrong">■</span> wrong',
}


def moments(page: PageRuns) -> str:
    """Return the slider with its figures; empty if no run kept a snapshot."""
    runs = frames(page)
    if not runs:
        return ""
    choices = "".join(
        f'<option value="{i}">{escape(run["name"])}</option>' for i, run in enumerate(runs)
    )

    drawings = {
        "reliability": diagram(EXAMPLE),
        "confidence": confidence_histogram(EXAMPLE),
        "margin": margin_histogram(np.array([-1.0, 0.0, 1.0]), np.array([1, 1])),
    }
    plots = "".join(
        f'<figure><h3>{word(key)}</h3><p class="key" data-key="{key}">{KEYS[key]}</p>'
        f"{plot(drawing.update_layout(showlegend=False), TITLES[key], role=key)}{FIGURE_TOOLS}"
        "</figure>"
        for key, drawing in drawings.items()
    )
    note = (
        "One moment of one run. Below the dashed line it is too sure; calibrated, the two upright "
        "lines coincide; left of 0 it is wrong. Whiskers are 95 % intervals."
    )
    if any(run["words"] == "one" for run in runs):
        note += (
            " Of two classes, P(class 1) is shown against how often class 1 is true: below the "
            "dashed line it is too high."
        )
    controls = (
        f'<div class="controls"><label class="wide">run <select id="moment-run">{choices}</select>'
        '</label><span class="choice" id="moment-split" role="group" aria-label="data"></span>'
        '<span class="slide"><button type="button" id="moment-play" aria-label="play">▶</button>'
        '<input type="range" id="moment-step" min="0" step="1" aria-label="moment of training">'
        '<output id="moment-said" for="moment-step"></output></span></div>'
    )
    words = escape(json.dumps(WORDS, separators=(",", ":")))
    triple = f'<div class="triple" data-words="{words}">{plots}</div>'
    blocks = (controls, triple, frames_script(runs))
    return section("Through training", note, *blocks, name="moments")


# A diagram with every kind of mark, for the scripts to fill.
EXAMPLE = Bins(
    edges=np.array([0.0, 0.3, 0.6, 1.0]),
    counts=np.array([1, 1, 1]),
    accuracy=np.array([0.5, 0.5, 0.5]),
    confidence=np.array([0.2, 0.5, 0.9]),
    interval=np.array([[0.3, 0.7], [0.3, 0.7], [0.3, 0.7]]),
)


def frames_script(runs: Sequence[dict[str, Any]]) -> str:
    text = in_script(json.dumps(runs, separators=(",", ":")))
    return f'<script type="application/json" id="frames">{text}</script>'


def frames(page: PageRuns) -> list[dict[str, Any]]:
    """Return the snapshots of every run that has some, in whole numbers and hundredths."""
    most = max(4, MAX_SNAPSHOTS // max(1, len(page.named)))
    runs = [{"name": name, **frames_of(run, most)} for name, run in page.named]
    return [run for run in runs if run["splits"]]


def frames_of(run: Run, most: int) -> dict[str, Any]:
    """Return the frames of each split, validation first, and their set of words.

    With two classes they are of P(class 1), if all snapshots hold it.
    """
    steps = run.snapshots
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).astype(int))
    snapshots = [(steps[i], run.snapshot_if_whole(steps[i])) for i in chosen]

    whole = [arrays for _, arrays in snapshots if arrays]
    of_class_one = bool(whole) and all(
        any(name.endswith("_class_one_counts") for name in arrays) for arrays in whole
    )
    splits = {}
    for split in ("val", "train"):
        present = [(step, s) for step, s in snapshots if f"{split}_counts" in s]
        if present:
            splits[split] = [frame_of(step, s, split, of_class_one) for step, s in present]
    return {"words": "one" if of_class_one else "top", "splits": splits}


def frame_of(
    step: int, arrays: dict[str, np.ndarray], split: str, of_class_one: bool = False
) -> dict[str, Any]:
    """Return one moment: filled bins as (bin, count, confidence, accuracy, low, high), margins."""
    bins = bins_of(arrays, f"{split}_class_one" if of_class_one else split)
    low, high = bins.interval.T

    percent = [np.round(100 * each, 2) for each in (bins.confidence, bins.accuracy, low, high)]
    filled = np.flatnonzero(bins.counts)
    columns = (filled, bins.counts[filled], *(each[filled] for each in percent))

    edges = arrays[f"{split}_margin_edges"]
    return {
        "step": step,
        "of": len(bins.counts),
        "bins": [each.tolist() for each in columns],
        "range": [float(f"{edges[0]:.5g}"), float(f"{edges[-1]:.5g}")],
        "margin": arrays[f"{split}_margin_counts"].tolist(),
    }
