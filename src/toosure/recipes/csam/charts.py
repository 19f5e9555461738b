"""Charts of the figures: panels with lines or bars, side by side or in rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from toosure.figures.style import PALETTE, PLAIN_AXIS, PLAIN_LAYOUT, QUIET

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Numbers = Sequence[float] | np.ndarray
BAR_GROUP = 0.8  # of the distance between two groups of bars


@dataclass(frozen=True)
class Curve:
    """A line with its points; curves of the same name have the same colour."""

    name: str
    x: Numbers
    y: Numbers
    dash: str = "solid"
    quiet: bool = False  # grey and thin: a bound, a mean, a diagonal


@dataclass(frozen=True)
class Bars:
    """Bars of one name: one height per place, all of the same width."""

    name: str
    x: Numbers
    y: Numbers
    width: float


@dataclass(frozen=True)
class Panel:
    """One panel: title, axes and marks."""

    title: str
    x_title: str
    y_title: str
    marks: Sequence[Curve | Bars]
    ticks: Sequence[str] = ()  # names of the places 0, 1, 2 ... on the horizontal axis


def draw(rows: Sequence[Sequence[Panel]], height: int = 300) -> "Figure":
    """Draw rows of panels, each with its own axes; every name is in the legend once."""
    from plotly.subplots import make_subplots

    titles = [panel.title for row in rows for panel in row]
    columns = max(len(row) for row in rows)
    drawing = make_subplots(
        len(rows),
        columns,
        subplot_titles=titles,
        vertical_spacing=0.3 / len(rows),
        horizontal_spacing=0.09,
    )
    drawing.update_layout(PLAIN_LAYOUT)
    drawing.update_xaxes(PLAIN_AXIS)
    drawing.update_yaxes(PLAIN_AXIS)

    names = colour_of_names(rows)
    shown: set[str] = set()
    for number, row in enumerate(rows, 1):
        for column, panel in enumerate(row, 1):
            for mark in panel.marks:
                trace = trace_of(mark, names.get(mark.name, 0)) | {
                    "showlegend": mark.name not in shown
                }
                shown.add(mark.name)
                drawing.add_trace(trace, row=number, col=column)
            label_panel(drawing, panel, number, column)

    drawing.update_annotations(font={"size": 13})
    total = height * len(rows) + 90
    margin = {"l": 60, "r": 16, "t": 70, "b": 48}
    legend = {"y": 1 + 34 / total}
    return drawing.update_layout(showlegend=True, height=total, margin=margin, legend=legend)


def label_panel(drawing: "Figure", panel: Panel, row: int, column: int) -> None:
    """Set the axis titles of a panel and the names of its places."""
    drawing.update_xaxes(title_text=panel.x_title, row=row, col=column)
    drawing.update_yaxes(title_text=panel.y_title, row=row, col=column)
    if panel.ticks:
        places = list(range(len(panel.ticks)))
        drawing.update_xaxes(tickvals=places, ticktext=list(panel.ticks), row=row, col=column)


def colour_of_names(rows: Sequence[Sequence[Panel]]) -> dict[str, int]:
    """Number the names of coloured marks, in order of appearance."""
    marks = [mark for row in rows for panel in row for mark in panel.marks]
    coloured = [mark.name for mark in marks if not (isinstance(mark, Curve) and mark.quiet)]
    return {name: number for number, name in enumerate(dict.fromkeys(coloured))}


def trace_of(mark: Curve | Bars, number: int) -> dict[str, Any]:
    """Return a mark as a Plotly trace."""
    colour = PALETTE[number % len(PALETTE)]
    place = {"x": list(mark.x), "y": list(mark.y), "name": mark.name}
    if isinstance(mark, Bars):
        return {"type": "bar", "width": mark.width, "marker": {"color": colour}, **place}

    line = {"color": QUIET if mark.quiet else colour, "width": 1.3 if mark.quiet else 2}
    mode = "lines" if mark.quiet else "lines+markers"
    marker = {"color": line["color"], "size": 6}
    return {
        "type": "scatter",
        "mode": mode,
        "line": {**line, "dash": mark.dash},
        "marker": marker,
        **place,
    }


def grouped_bars(series: Mapping[str, Sequence[float | None]]) -> list[Bars]:
    """Return bars side by side, one group per place; unknown heights are left out.

    >>> [round(bars.x[0], 2) for bars in grouped_bars({"SGD": [3.0], "SAM": [1.0]})]
    [-0.2, 0.2]
    """
    width = BAR_GROUP / max(len(series), 1)
    bars = []
    for number, (name, heights) in enumerate(series.items()):
        offset = width * (number - (len(series) - 1) / 2)
        known = [(place, height) for place, height in enumerate(heights) if height is not None]
        places = [place + offset for place, _ in known]
        bars.append(Bars(name, places, [height for _, height in known], width * 0.9))
    return bars
