"""The slider through training: three figures of one moment, and the numbers that move them."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from toosure.figures import Bins, Group, bins_of, confidence_histogram, margin_histogram
from toosure.figures import reliability_diagram as diagram
from toosure.figures.groups import name_of
from toosure.report.follow import FollowedRun
from toosure.report.page import in_script, plot, prose

MOST = 1600  # snapshots on one page: about 1.3 kB each
TITLES = {
    "reliability": "Accuracy at each confidence",
    "confidence": "How often it is how sure",
    "margin": "How far from the border",
}
SIDES = '<span class="under">■</span> right <span class="over">■</span> wrong'
KEYS = {  # what the marks mean; the scripts put numbers into <b>
    "reliability": '<span class="over">●</span> too sure <span class="under">◆</span> not sure '
    "enough <span>╌ calibrated</span>",
    "confidence": f"{SIDES} <span>┊ accuracy <b></b></span> <span>│ claimed <b></b></span>",
    "margin": SIDES,
}


def moments(groups: Sequence[Group]) -> str:
    """Return the slider with its figures; nothing where no run kept a snapshot."""
    found = frames(groups)
    if not found:
        return ""
    choices = "".join(
        f'<option value="{i}">{escape(run["name"])}</option>' for i, run in enumerate(found)
    )
    drawings = {"reliability": diagram(EXAMPLE), "confidence": confidence_histogram(EXAMPLE)}
    drawings["margin"] = margin_histogram(np.array([-1.0, 0.0, 1.0]), np.array([1, 1]))
    plots = "".join(
        f'<figure><h3>{TITLES[key]}</h3><p class="key" data-key="{key}">{KEYS[key]}</p>'
        f"{plot(drawing.update_layout(showlegend=False), TITLES[key], role=key)}</figure>"
        for key, drawing in drawings.items()
    )
    note = (
        "One moment of one run. Below the dashed line it is too sure; calibrated, the two upright "
        "lines coincide; left of 0 it is wrong. Whiskers are 95 % intervals."
    )
    return (
        f'<section id="moments"><h2>Through training</h2><p>{prose(note)}</p>'
        f'<div class="controls"><label class="wide">run <select id="moment-run">{choices}</select>'
        '</label><span class="choice" id="moment-split" role="group" aria-label="data"></span>'
        '<label class="slide"><button type="button" id="moment-play" aria-label="play">▶</button>'
        '<input type="range" id="moment-step" min="0" step="1" aria-label="moment of training">'
        '<output id="moment-said" for="moment-step"></output></label></div>'
        f'<div class="triple">{plots}</div>{frames_script(found)}</section>'
    )


EXAMPLE = Bins(
    edges=np.array([0.0, 0.5, 1.0]),
    counts=np.array([1, 1]),
    accuracy=np.array([0.5, 0.5]),
    confidence=np.array([0.4, 0.8]),
    interval=np.array([[0.1, 0.9], [0.1, 0.9]]),
)  # has every kind of mark, for the scripts to fill


def frames_script(found: Sequence[dict[str, Any]]) -> str:
    text = in_script(json.dumps(found, separators=(",", ":")))
    return f'<script type="application/json" id="frames">{text}</script>'


def frames(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the snapshots of every run that has some, in whole numbers and hundredths."""
    named = [(name_of(run, group), run) for group in groups for run in group.runs]
    most = max(4, MOST // max(1, len(named)))
    found = [{"name": name, "splits": splits_of(run, most)} for name, run in named]
    return [each for each in found if each["splits"]]


def splits_of(run: FollowedRun, most: int) -> dict[str, list[dict[str, Any]]]:
    """Return the frames of each split, validation first."""
    steps = run.snapshots
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).astype(int))
    read = [(steps[i], run.snapshot(steps[i])) for i in chosen]
    splits = {
        split: [
            frame_of(step, arrays, split) for step, arrays in read if f"{split}_counts" in arrays
        ]
        for split in ("val", "train")
    }
    return {split: each for split, each in splits.items() if each}


def frame_of(step: int, arrays: dict[str, np.ndarray], split: str) -> dict[str, Any]:
    """Return one moment: filled bins as (bin, count, confidence, accuracy, low, high), margins."""
    bins = bins_of(arrays, split)
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
