"""Figures of papers in the style of `toosure.figures`: grids of trajectories, portraits, bins."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toosure.figures import Group, bins_of
from toosure.figures.phase import paths
from toosure.figures.reliability import SIDES, filled_bins, marks, sides
from toosure.figures.style import (
    PALETTE,
    PLAIN_AXIS,
    PLAIN_LAYOUT,
    QUIET,
    log_axis,
)
from toosure.figures.trajectory import edges, line, values_of
from toosure.quantities import described
from toosure.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_POINTS = 400  # per line, so that a page of a hundred runs stays small
MIN_ECE = 0.01  # points: the lower end of portraits, so that one run does not squeeze all others


class Column(NamedTuple):
    """A column of a grid: title, labelled runs, and the split to draw."""

    title: str
    runs: Mapping[str, Run]
    split: str = "train"


def trajectories(columns: Sequence[Column], panels: Sequence[str]) -> "Figure":
    """Draw quantities along training: one row per quantity, one colour per label.

    The panels of a row share their axis, so that columns can be compared. Sharpness of the training
    split is drawn with the edge of stability 2 / lr, dashed.
    """
    drawing = grid(len(panels), [column.title for column in columns])
    labels = list(dict.fromkeys(label for column in columns for label in column.runs))

    for number, column in enumerate(columns, 1):
        # A label keeps its colour in every column.
        groups = {
            labels.index(label): Group(label, (run,), (label,))
            for label, run in column.runs.items()
        }
        earlier = {label for before in columns[: number - 1] for label in before.runs}

        for row, key in enumerate(panels, 1):
            traces = [
                line(group, 0, colour, key, split, values, MAX_POINTS)
                for colour, group in groups.items()
                for split in (column.split, "")
                if (values := values_of(group.runs[0], split, key)) is not None
            ]
            for trace in traces:
                trace["line"]["dash"] = "solid"
                trace["showlegend"] = row == 1 and trace["name"] not in earlier  # named once
            if key == "gn_sharpness" and column.split == "train":
                traces += stability_edges(groups)
            add_to_cell(drawing, traces, row, number)

    return label_axes(drawing, panels)


def stability_edges(groups: Mapping[int, Group]) -> list[dict[str, Any]]:
    """Return the edge of stability 2 / lr of each run, in its colour."""
    traces = []
    for colour, group in groups.items():
        for edge in edges([group], MAX_POINTS):
            edge["line"]["color"] = PALETTE[colour % len(PALETTE)]
            traces.append(edge)
    return traces


def add_to_cell(drawing: "Figure", traces: list[dict[str, Any]], row: int, column: int) -> None:
    """Add all traces to one cell of a grid."""
    drawing.add_traces(traces, rows=[row] * len(traces), cols=[column] * len(traces))


def grid(rows: int, titles: Sequence[str], height: int = 210) -> "Figure":
    """Return an empty grid with a title above each column; each row is `height` pixels high."""
    from plotly.subplots import make_subplots

    drawing = make_subplots(
        rows,
        len(titles),
        shared_xaxes="columns",
        shared_yaxes="rows",
        column_titles=list(titles),
        vertical_spacing=0.14 / rows,
        horizontal_spacing=0.05,
    )
    drawing.update_layout(PLAIN_LAYOUT)
    margin = {"l": 60, "r": 16, "t": 60, "b": 48}
    return drawing.update_layout(height=height * rows + 90, margin=margin)


def label_axes(drawing: "Figure", panels: Sequence[str]) -> "Figure":
    """Add axes with their units and a legend to a grid of panels.

    >>> drawing = label_axes(grid(2, ["training"]), ["ece", "accuracy"])
    >>> drawing.layout.yaxis.title.text, drawing.layout.yaxis2.title.text
    ('ECE, points', 'accuracy, %')
    """
    drawing.update_xaxes(PLAIN_AXIS)
    drawing.update_yaxes(PLAIN_AXIS)
    drawing.update_xaxes(title_text="step", row=len(panels))

    for row, key in enumerate(panels, 1):
        panel = described(key)
        drawing.update_yaxes(title_text=panel.heading, row=row, col=1)
        if panel.log:
            traces = list(drawing.select_traces(row=row))
            axis = log_axis(trace.y for trace in traces) if traces else {"type": "log"}
            drawing.update_yaxes(axis, row=row)

    drawing.update_annotations(font={"size": 13})
    return drawing.update_layout(showlegend=True, legend={"y": 1 + 26 / drawing.layout.height})


def portraits(columns: Sequence[Column]) -> "Figure":
    """Draw ECE against sharpness, one path per run: a dot at the start, a cross at the end."""
    drawing = grid(1, [column.title for column in columns], height=330)
    for number, column in enumerate(columns, 1):
        for colour, (label, run) in enumerate(column.runs.items()):
            traces = paths(Group(label, (run,), (label,)), 0, colour, column.split, MAX_POINTS)
            add_to_cell(drawing, traces, 1, number)

    drawing.update_xaxes(PLAIN_AXIS)
    drawing.update_yaxes(PLAIN_AXIS)
    for number in range(1, len(columns) + 1):
        sharpness = [trace.x for trace in drawing.select_traces(col=number)]
        axis = log_axis(sharpness) if sharpness else {}
        drawing.update_xaxes(axis, col=number, title_text="sharpness")

    ece = [trace.y[trace.y >= MIN_ECE] for trace in drawing.data]
    if any(map(len, ece)):
        high = max(values.max() for values in ece if len(values))
        low = max(MIN_ECE, min(values.min() for values in ece if len(values)) / 2)
        drawing.update_yaxes(log_axis(ece) | {"range": [math.log10(low), math.log10(2 * high)]})

    drawing.update_yaxes(title_text="ECE, points", col=1)
    return drawing.update_layout(showlegend=False)


def reliabilities(columns: Sequence[Column]) -> "Figure":
    """Draw the last reliability diagram of the first run of each column."""
    drawing = grid(1, [column.title for column in columns], height=300)
    for number, column in enumerate(columns, 1):
        drawing.add_scatter(
            x=[0, 100],
            y=[0, 100],
            mode="lines",
            row=1,
            col=number,
            hoverinfo="skip",
            line={"color": QUIET, "width": 1.5, "dash": "dash"},
        )

        run = next(iter(column.runs.values()))
        bins = filled_bins(bins_of(run.snapshot(run.snapshots[-1]), column.split))
        for mask, (colour, symbol) in zip(sides(bins), SIDES, strict=True):
            if mask.any():
                chosen = {key: values[mask] for key, values in bins.items()}
                trace = marks(chosen, "", colour, symbol, "95 % interval")
                drawing.add_trace(trace, row=1, col=number)

    drawing.update_xaxes(PLAIN_AXIS | {"range": [0, 100], "dtick": 25})
    drawing.update_yaxes(PLAIN_AXIS | {"range": [0, 105], "dtick": 25})
    drawing.update_xaxes(title_text="confidence, %")
    drawing.update_yaxes(title_text="accuracy, %", col=1)
    return drawing.update_layout(showlegend=False)


class MeanSeries(NamedTuple):
    """A named series: one mean with its standard deviation per category."""

    name: str
    means: Sequence[float]
    deviations: Sequence[float]


def compare_means(categories: Sequence[str], series: Sequence[MeanSeries], title: str) -> "Figure":
    """Draw means with their deviations, the series side by side at each category."""
    import plotly.graph_objects as go

    drawing = go.Figure(layout=PLAIN_LAYOUT)
    for number, each in enumerate(series):
        offset = 0.14 * (number - (len(series) - 1) / 2)
        drawing.add_scatter(
            x=np.arange(len(categories)) + offset,
            y=list(each.means),
            mode="markers",
            name=each.name,
            marker={"color": PALETTE[number], "size": 9},
            error_y={"array": list(each.deviations), "thickness": 1.5, "width": 4},
        )

    drawing.update_xaxes(tickvals=list(range(len(categories))), ticktext=list(categories))
    drawing.update_yaxes(title_text=title)
    return drawing.update_layout(showlegend=True, height=420)


def slacks(run: Run, names: Mapping[str, str], from_step: float | None) -> "Figure":
    """Draw columns of a run (key -> label) on one log axis, a dotted line at `from_step`."""
    import plotly.graph_objects as go

    drawing = go.Figure(layout=PLAIN_LAYOUT)
    for number, (key, label) in enumerate(names.items()):
        y = run.columns[key]
        drawable = np.isfinite(y) & (y > 0)
        drawing.add_scatter(
            x=run.columns["step"][drawable],
            y=y[drawable],
            mode="lines",
            name=label,
            line={"color": PALETTE[number % len(PALETTE)], "width": 1.8},
        )

    drawing.update_xaxes(title_text="step")
    drawing.update_yaxes(log_axis(trace.y for trace in drawing.data) if drawing.data else {})
    if from_step is not None:
        drawing.add_vline(from_step, line={"color": QUIET, "dash": "dot", "width": 1.2})
    return drawing.update_layout(showlegend=True, height=420)
