"""Figures: pure functions from numbers to Plotly figures, in colours that all eyes tell apart."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure, Scatter

    from toosure.metrics.binned import Reliability

# Blue and vermilion of Okabe & Ito (2008); what is told by colour is also told by shape or place.
INK, QUIET, LINE, BLUE, ORANGE = "#1d2229", "#5c6672", "#dbe0e6", "#0072b2", "#d55e00"
DARK = {  # what a dark page draws in their place
    **{INK: "#e7eaee", QUIET: "#9da7b3", LINE: "#323942"},
    **{BLUE: "#56b4e9", ORANGE: "#f0a050"},
}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def reliability_diagram(table: "Reliability", level: float = 0.95) -> "Figure":
    """Draw accuracy over confidence, a mark a bin with its interval; below the line is too sure.

    The area of a mark is the share of the samples in its bin. `level` is that of the intervals.

    >>> from toosure.metrics.binned import reliability_from_confidence
    >>> table = reliability_from_confidence([0.9, 0.8, 0.7], [True, False, True], bins=2)
    >>> reliability_diagram(table).layout.xaxis.title.text
    'confidence, %'
    """
    import plotly.graph_objects as go

    bins = filled_bins(table)
    over = bins["confidence"] > bins["accuracy"]
    interval = f"{100 * level:g} % interval"
    drawing = go.Figure(layout=plain_layout())
    drawing.add_scatter(
        **{"x": [0, 100], "y": [0, 100], "mode": "lines", "hoverinfo": "skip"},
        **{"name": "calibrated", "line": {"color": QUIET, "width": 1.5, "dash": "dash"}},
    )
    for mask, name, colour, symbol in (
        (over, "too sure", ORANGE, "circle"),
        (~over, "not sure enough", BLUE, "diamond"),
    ):
        if mask.any():
            chosen = {key: values[mask] for key, values in bins.items()}
            drawing.add_trace(marks(chosen, name, colour, symbol, interval))
    drawing.update_xaxes(title_text="confidence, %", range=[0, 100], dtick=20)
    drawing.update_yaxes(title_text="accuracy, %", range=[0, 100], dtick=20)
    return drawing


def filled_bins(table: "Reliability") -> dict[str, np.ndarray]:
    """Return the bins that hold samples, in per cent, as arrays by name."""
    counts = table.counts.cpu().numpy()
    low, high = table.interval.cpu().numpy().T
    edges = table.edges.cpu().numpy()
    bins = {"accuracy": table.accuracy, "confidence": table.confidence}
    columns = {name: 100 * values.cpu().numpy() for name, values in bins.items()}
    columns |= {"low": 100 * low, "high": 100 * high, "share": 100 * counts / counts.sum()}
    columns |= {"left": 100 * edges[:-1], "right": 100 * edges[1:], "counts": counts}
    return {name: values[counts > 0] for name, values in columns.items()}


def marks(
    bins: dict[str, np.ndarray], name: str, colour: str, symbol: str, interval: str
) -> "Scatter":
    """Return the marks of some bins, with whiskers for their intervals."""
    import plotly.graph_objects as go

    accuracy = bins["accuracy"]
    return go.Scatter(
        x=bins["confidence"],
        y=accuracy,
        customdata=np.stack([bins["counts"], bins["low"], bins["high"]], 1),
        mode="markers",
        cliponaxis=False,
        name=name,
        marker={
            **{"color": colour, "symbol": symbol, "opacity": 1, "line": {"width": 0}},
            **{"size": np.sqrt(36 + 5 * bins["share"])},
        },
        error_y={
            **{"type": "data", "symmetric": False, "thickness": 1.5, "width": 4},
            **{"array": bins["high"] - accuracy, "arrayminus": accuracy - bins["low"]},
        },
        hovertemplate="confidence %{x:.1f} %<br>accuracy %{y:.1f} %<br>%{customdata[0]:,} samples"
        f"<br>{interval} %{{customdata[1]:.1f}} to %{{customdata[2]:.1f}} %<extra></extra>",
    )


def confidence_histogram(table: "Reliability") -> "Figure":
    """Draw how often each confidence occurs, right and wrong stacked, with the two means.

    >>> from toosure.metrics.binned import reliability_from_confidence
    >>> table = reliability_from_confidence([0.9, 0.8, 0.7], [True, False, True], bins=2)
    >>> [trace.name for trace in confidence_histogram(table).data]
    ['right', 'wrong', 'accuracy 66.7 %', 'mean confidence 80.0 %']
    """
    import plotly.graph_objects as go

    bins = filled_bins(table)
    right = bins["share"] * bins["accuracy"] / 100
    means = {name: np.dot(bins["share"], bins[name]) / 100 for name in ("accuracy", "confidence")}
    drawing = go.Figure([bars(bins, right, "right", BLUE)], plain_layout())
    drawing.add_trace(bars(bins, bins["share"] - right, "wrong", ORANGE))
    top = 1.05 * bins["share"].max()
    for name, value, dash in (
        ("accuracy", means["accuracy"], "dot"),
        ("mean confidence", means["confidence"], "solid"),
    ):
        drawing.add_scatter(
            **{"x": [value, value], "y": [0, top], "mode": "lines", "hoverinfo": "skip"},
            **{"name": f"{name} {value:.1f} %", "line": {"color": INK, "width": 2, "dash": dash}},
        )
    drawing.update_layout(barmode="stack", bargap=0)
    drawing.update_xaxes(title_text="confidence, %", range=[0, 100], dtick=20)
    drawing.update_yaxes(title_text="samples, %", rangemode="tozero", nticks=6)
    return drawing


def bars(bins: dict[str, np.ndarray], height: np.ndarray, name: str, colour: str) -> "Bar":
    """Return a bar for each bin, as wide as the bin."""
    import plotly.graph_objects as go

    left, right = bins["left"], bins["right"]
    return go.Bar(
        x=(left + right) / 2,
        y=height,
        width=0.92 * (right - left),
        name=name,
        marker={"color": colour, "line": {"width": 0}},
        customdata=np.stack([left, right], 1),
        hovertemplate="confidence %{customdata[0]:.1f} to %{customdata[1]:.1f} %<br>"
        f"{name}: %{{y:.2f}} % of the samples<extra></extra>",
    )


def plain_layout() -> dict[str, Any]:
    """Return the layout that all figures share: no frame, quiet grid, legend above."""
    axis = {
        **{"gridcolor": LINE, "linecolor": LINE, "zeroline": False, "ticks": ""},
        **{"tickfont": {"color": QUIET}, "title": {"font": {"color": QUIET}, "standoff": 12}},
        **{"automargin": True, "fixedrange": True},
    }
    return {
        "template": "none",
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 50, "r": 22, "t": 12, "b": 48},
        "xaxis": axis,
        "yaxis": axis,
        "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left"},
        "legend": {
            **{"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            **{
                "font": {"color": INK},
                "traceorder": "normal",
                "itemclick": False,
                "itemdoubleclick": False,
            },
        },
    }
