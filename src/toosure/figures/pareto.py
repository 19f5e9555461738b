"""Two goals at once: the Pareto front of runs, and a figure."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from toosure.figures.style import PALETTE, PLAIN_LAYOUT, QUIET
from toosure.quantities import Quantity

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def pareto_front(values: np.ndarray, signs: Sequence[float]) -> np.ndarray:
    """Mark the rows of the Pareto front: no other is as good in every column and better in one.

    A sign is 1 where more is better, -1 where less is. Equal rows are marked together. (N,) of bool

    >>> pareto_front(np.array([[0.9, 0.5], [0.8, 0.3], [0.8, 0.4]]), (1, -1)).tolist()
    [True, True, False]
    """
    scores = np.asarray(values, dtype=float) * np.asarray(signs, dtype=float)  # (N, goals)
    front = np.ones(len(scores), dtype=bool)
    for place, score in enumerate(scores):
        beaten_by = (scores >= score).all(1) & (scores > score).any(1)
        front[place] = not beaten_by.any()
    return front


def pareto_figure(
    values: np.ndarray, front: np.ndarray, labels: Sequence[str], goals: Sequence[Quantity]
) -> "Figure":
    """Draw runs by two goals; stairs join the front.

    `values` are (N, 2), in the units of the goals.
    """
    import plotly.graph_objects as go

    drawing = go.Figure(layout=PLAIN_LAYOUT)
    first, second = goals
    hover = f"%{{text}}<br>{first.short} %{{x:.4g}}, {second.short} %{{y:.4g}}<extra></extra>"
    names = np.array([escape(label, quote=False) for label in labels], dtype=object)
    drawing.add_scatter(
        x=values[~front, 0],
        y=values[~front, 1],
        text=names[~front],
        mode="markers",
        name="beaten by another",
        marker={"color": QUIET, "size": 8, "symbol": "circle-open", "opacity": 0.8},
        hovertemplate=hover,
    )

    # Stairs: the best second goal at each value of the first.
    stairs = "vh" if first.better == "higher" else "hv"
    order = np.flatnonzero(front)[np.argsort(values[front, 0], kind="stable")]
    drawing.add_scatter(
        x=values[order, 0],
        y=values[order, 1],
        text=names[order],
        mode="lines+markers",
        name="Pareto front",
        line={"color": PALETTE[0], "width": 1.5, "shape": stairs},
        marker={"color": PALETTE[0], "size": 10},
        hovertemplate=hover,
    )
    drawing.update_xaxes(title_text=first.heading)
    drawing.update_yaxes(title_text=second.heading)
    return drawing
