"""Calibration error against sharpness: the path of each run, and their correlation."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toosure.figures.groups import Group, Measured, group_runs
from toosure.figures.style import PALETTE, PLAIN_LAYOUT, log_axis
from toosure.figures.thinning import extremes
from toosure.figures.trajectory import NAMES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Correlation(NamedTuple):
    """The correlation of two quantities along a run, by value and by rank."""

    pearson: float
    rank: float
    rows: int


def paired(run: Measured, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return step, sharpness and ECE of the rows that have both; None if there are none."""
    sharpness = run.columns.get(f"{split}/gn_sharpness")
    ece = run.columns.get(f"{split}/ece")
    if sharpness is None or ece is None:
        return None
    known = np.isfinite(sharpness) & np.isfinite(ece)
    return (run.columns["step"][known], sharpness[known], ece[known]) if known.any() else None


def correlation(run: Measured, split: str = "train") -> Correlation | None:
    """Return Pearson's and Spearman's correlation of ECE with sharpness over the rows of a run.

    Return None if a run has fewer than three such rows, or if one of the two is constant.
    """
    pair = paired(run, split)
    if pair is None or len(pair[0]) < 3 or np.ptp(pair[1]) == 0 or np.ptp(pair[2]) == 0:
        return None
    _, sharpness, ece = pair
    ranks = np.corrcoef(ranked(sharpness), ranked(ece))[0, 1]
    return Correlation(float(np.corrcoef(sharpness, ece)[0, 1]), float(ranks), len(ece))


def ranked(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value; equal values share their mean rank.

    >>> ranked(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def phase_portrait(
    runs: Sequence[Measured], splits: Sequence[str] = ("train",), points: int = 1000
) -> "Figure":
    """Draw ECE against Gauss-Newton sharpness on log axes: a dot at the start, a cross at the end.

    After Figure A1 of "Too Sharp, Too Sure" (arXiv:2604.20614).
    """
    import plotly.graph_objects as go

    drawing = go.Figure(layout=PLAIN_LAYOUT)
    for place, group in enumerate(group_runs(runs)):
        for number in range(len(group.runs)):
            for split in splits:
                drawing.add_traces(paths(group, number, place, split, points))
    drawing.update_xaxes(log_axis(t.x for t in drawing.data), title_text="Gauss-Newton sharpness")
    drawing.update_yaxes(log_axis(t.y for t in drawing.data), title_text="ECE, points")
    drawing.update_layout(showlegend=False)
    return drawing


def paths(group: Group, number: int, place: int, split: str, points: int) -> list[dict[str, Any]]:
    """Return the path of one run of a group, and the marks of its start and end."""
    run = group.runs[number]
    pair = paired(run, split)
    if pair is None:
        return []
    step, sharpness, ece = pair
    shown = np.union1d(extremes(sharpness, points // 2), extremes(ece, points // 2))

    colour = PALETTE[place % len(PALETTE)]
    name = escape(group.names[number], quote=False)
    meta = {"group": place, "split": split, "run": getattr(run, "id", run.name)}
    shared: dict[str, Any] = {
        "type": "scatter",
        "name": escape(group.label, quote=False),
        "hovertemplate": f"{name}<br>{NAMES.get(split, split)}, step %{{customdata:,}}<br>"
        "sharpness %{x:.3g}, ECE %{y:.3g} points<extra></extra>",
    }

    ends = [0, -1]
    return [
        shared
        | coordinates(step[shown], sharpness[shown], ece[shown])
        | {"mode": "lines", "line": {"color": colour, "width": 1.4}, "opacity": 0.75}
        | {"meta": meta | {"key": "phase"}},
        shared
        | coordinates(step[ends], sharpness[ends], ece[ends])
        | {
            "mode": "markers",
            "marker": {
                "color": colour,
                "size": [8, 10],
                "symbol": ["circle", "x"],
                "opacity": 1,
                "line": {"width": 0},
            },
            "meta": meta | {"key": "ends"},
        },
    ]


def coordinates(step: np.ndarray, sharpness: np.ndarray, ece: np.ndarray) -> dict[str, np.ndarray]:
    """Return the points of a path: sharpness, ECE in points, and the step for the hover text."""
    return {
        "x": sharpness.astype(np.float32),
        "y": (100 * ece).astype(np.float32),
        "customdata": step.astype(np.int64),
    }
