"""Figures: pure functions from numbers and runs to Plotly figures, the same on every page."""

from toosure.figures.groups import Group, group_runs
from toosure.figures.pareto import pareto_figure, pareto_front
from toosure.figures.phase import correlation, phase_portrait
from toosure.figures.reliability import (
    TOP_LABEL,
    Bins,
    Wording,
    bins_of,
    confidence_histogram,
    margin_histogram,
    probability_wording,
    reliability_diagram,
)
from toosure.figures.style import DARK
from toosure.figures.thinning import thin
from toosure.figures.trajectory import panel_keys, stability, trajectory

__all__ = [
    "DARK",
    "TOP_LABEL",
    "Bins",
    "Group",
    "Wording",
    "bins_of",
    "confidence_histogram",
    "correlation",
    "group_runs",
    "margin_histogram",
    "panel_keys",
    "pareto_figure",
    "pareto_front",
    "phase_portrait",
    "probability_wording",
    "reliability_diagram",
    "stability",
    "thin",
    "trajectory",
]
