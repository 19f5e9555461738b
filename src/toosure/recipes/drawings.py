"""Figures of papers, on the look of `toosure.figures`: grids of trajectories, portraits, bins."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toosure.figures import Group, bins_of
from toosure.figures.phase import paths
from toosure.figures.reliability import filled_bins, marks
from toosure.figures.style import BLUE, ORANGE, PALETTE, QUIET, log_axis, plain_axis, plain_layout
from toosure.figures.trajectory import edges, lines, panel_of
from toosure.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

POINTS = 400  # a line: a page of a hundred runs stays small


class Column(NamedTuple):
    """A column of a grid: its title, labelled runs, and the split that is drawn."""

    title: str
    runs: Mapping[str, Run]
    split: str = "train"


def trajectories(columns: Sequence[Column], panels: Sequence[str]) -> "Figure":
    """Draw quantities along training: a column each, a row a quantity, a colour a label.

    A row shares its axis, so that columns can be compared; sharpness comes with 2 / lr, dashed.
    """
    drawing = grid(len(panels), [column.title for column in columns])
    labels = list(dict.fromkeys(label for column in columns for label in column.runs))
    for number, column in enumerate(columns, 1):
        groups = {labels.index(label): Group(label, (run,)) for label, run in column.runs.items()}
        for row, key in enumerate(panels, 1):
            found = [
                line
                for place, group in groups.items()
                for line in lines(group, place, key, (column.split,), POINTS)
            ]
            for line in found:
                line["line"]["dash"] = "solid"
                line["showlegend"] = row == 1 and shown_first(line, columns, number)
            if key == "gn_sharpness" and column.split == "train":
                found += stability_lines(groups)
            drawing.add_traces(found, rows=[row] * len(found), cols=[number] * len(found))
    return dressed(drawing, panels, len(columns))


def shown_first(line: dict[str, Any], columns: Sequence[Column], number: int) -> bool:
    """Whether this column is the first to have the line's label: the legend names it once."""
    earlier = (label for column in columns[: number - 1] for label in column.runs)
    return line["name"] not in earlier


def stability_lines(groups: Mapping[int, Group]) -> list[dict[str, Any]]:
    """Return the edge of stability of each run in its own colour."""
    found = []
    for place, group in groups.items():
        for line in edges([group], POINTS):
            line["line"]["color"] = PALETTE[place % len(PALETTE)]
            line["showlegend"] = False
            found.append(line)
    return found


def grid(rows: int, titles: Sequence[str], height: int = 210) -> "Figure":
    """Return an empty grid, a title above each column."""
    from plotly.subplots import make_subplots

    drawing = make_subplots(
        rows, len(titles), shared_xaxes="columns", shared_yaxes="rows", column_titles=list(titles),
        vertical_spacing=0.14 / rows, horizontal_spacing=0.05,
    )  # fmt: skip
    return drawing.update_layout(plain_layout()).update_layout(
        height=height * rows + 90, margin={"l": 60, "r": 16, "t": 60, "b": 48}
    )


def dressed(drawing: "Figure", panels: Sequence[str], columns: int) -> "Figure":
    """Give a grid its axes."""
    drawing.update_xaxes(plain_axis())
    drawing.update_yaxes(plain_axis())
    drawing.update_xaxes(title_text="step", row=len(panels))
    for row, key in enumerate(panels, 1):
        panel = panel_of(key)
        drawing.update_yaxes(title_text=panel.title, row=row, col=1)
        if panel.log:
            traces = list(drawing.select_traces(row=row))
            axis = log_axis(trace.y for trace in traces) if traces else {"type": "log"}
            drawing.update_yaxes(axis, row=row)
    drawing.update_annotations(font={"size": 13})
    return drawing.update_layout(showlegend=True, legend={"y": 1 + 26 / drawing.layout.height})


LEAST = 0.01  # points of ECE: paths leave a portrait below, so that one run does not squeeze all


def portraits(columns: Sequence[Column]) -> "Figure":
    """Draw ECE against sharpness, a column an optimizer: a dot at the start, a cross at the end."""
    drawing = grid(1, [column.title for column in columns], height=330)
    for number, column in enumerate(columns, 1):
        for place, (label, run) in enumerate(column.runs.items()):
            found = paths(run, Group(label, (run,)), place, column.split, POINTS)
            drawing.add_traces(found, rows=[1] * len(found), cols=[number] * len(found))
    drawing.update_xaxes(plain_axis())
    drawing.update_yaxes(plain_axis())
    for number in range(1, len(columns) + 1):
        xs = [trace.x for trace in drawing.select_traces(col=number)]
        drawing.update_xaxes(log_axis(xs) if xs else {}, col=number, title_text="sharpness")
    ys = [trace.y[trace.y >= LEAST] for trace in drawing.data]
    if any(map(len, ys)):
        top = max(y.max() for y in ys if len(y))
        low = max(LEAST, min(y.min() for y in ys if len(y)) / 2)
        drawing.update_yaxes(log_axis(ys) | {"range": [math.log10(low), math.log10(2 * top)]})
    drawing.update_yaxes(title_text="ECE, points", col=1)
    return drawing.update_layout(showlegend=False)


def reliabilities(columns: Sequence[Column]) -> "Figure":
    """Draw the last reliability diagram of the first run of each column."""
    drawing = grid(1, [column.title for column in columns], height=300)
    for number, column in enumerate(columns, 1):
        run = next(iter(column.runs.values()))
        bins = filled_bins(bins_of(run.snapshot(run.snapshots[-1]), column.split))
        drawing.add_scatter(
            x=[0, 100], y=[0, 100], mode="lines", row=1, col=number, hoverinfo="skip",
            line={"color": QUIET, "width": 1.5, "dash": "dash"},
        )  # fmt: skip
        over = bins["confidence"] > bins["accuracy"]
        for mask, name, colour, symbol in (
            (over, "too sure", ORANGE, "circle"), (~over, "not sure enough", BLUE, "diamond"),
        ):  # fmt: skip
            if mask.any():
                chosen = {key: values[mask] for key, values in bins.items()}
                drawing.add_trace(
                    marks(chosen, name, colour, symbol, "95 % interval"), row=1, col=number
                )
    drawing.update_xaxes(plain_axis() | {"range": [0, 100], "dtick": 25})
    drawing.update_yaxes(plain_axis() | {"range": [0, 105], "dtick": 25})
    drawing.update_xaxes(title_text="confidence, %").update_yaxes(title_text="accuracy, %", col=1)
    return drawing.update_layout(showlegend=False)


class Spread(NamedTuple):
    """A named series of means with deviations, one a category."""

    name: str
    values: Sequence[float]
    spreads: Sequence[float]


def compared(categories: Sequence[str], series: Sequence[Spread], title: str) -> "Figure":
    """Draw means with their deviations side by side, a category a place on the axis."""
    import plotly.graph_objects as go

    drawing = go.Figure(layout=plain_layout())
    for number, each in enumerate(series):
        offset = 0.14 * (number - (len(series) - 1) / 2)
        drawing.add_scatter(
            x=np.arange(len(categories)) + offset, y=list(each.values), mode="markers",
            name=each.name, marker={"color": PALETTE[number], "size": 9},
            error_y={"array": list(each.spreads), "thickness": 1.5, "width": 4},
        )  # fmt: skip
    ticks = {"tickvals": list(range(len(categories))), "ticktext": list(categories)}
    drawing.update_xaxes(ticks).update_yaxes(title_text=title)
    return drawing.update_layout(showlegend=True, height=420)


def slacks(run: Run, names: Mapping[str, str], from_step: float | None) -> "Figure":
    """Draw columns of a run on one log axis; a dotted line at `from_step`."""
    import plotly.graph_objects as go

    drawing = go.Figure(layout=plain_layout())
    for number, (key, label) in enumerate(names.items()):
        y = run.columns[key]
        kept = np.isfinite(y) & (y > 0)
        drawing.add_scatter(
            x=run.columns["step"][kept], y=y[kept], mode="lines", name=label,
            line={"color": PALETTE[number % len(PALETTE)], "width": 1.8},
        )  # fmt: skip
    drawing.update_xaxes(title_text="step")
    drawing.update_yaxes(log_axis(t.y for t in drawing.data) if drawing.data else {})
    if from_step is not None:
        drawing.add_vline(from_step, line={"color": QUIET, "dash": "dot", "width": 1.2})
    return drawing.update_layout(showlegend=True, height=420)
