"""The reliability diagram, and histograms of confidence and margin."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toosure.figures.style import INK, NEUTRAL, OVER, PLAIN_LAYOUT, QUIET, UNDER

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure, Scatter

    from toosure.metrics.binned import Reliability


class Bins(NamedTuple):
    """A reliability table as arrays of numpy, from a run's snapshot."""

    edges: np.ndarray  # (bins + 1,)
    counts: np.ndarray  # (bins,)
    accuracy: np.ndarray  # (bins,) NaN where a bin is empty
    confidence: np.ndarray  # (bins,)
    interval: np.ndarray  # (bins, 2)


def bins_of(snapshot: Mapping[str, np.ndarray], split: str) -> Bins:
    """Return the reliability table of a split from a run's snapshot."""
    return Bins(*(snapshot[f"{split}_{name}"] for name in Bins._fields))


class Wording(NamedTuple):
    """The texts of a diagram's axes and marks."""

    claimed: str
    true: str
    over: str  # marks below the line
    under: str
    right: str  # the two parts of a bar
    wrong: str
    mean_claimed: str


TOP_LABEL = Wording(
    "confidence", "accuracy", "too sure", "not sure enough", "right", "wrong", "mean confidence"
)


def probability_wording(event: str) -> Wording:
    """Return the texts for a diagram of P(event) against its frequency, such as "class 1"."""
    return Wording(
        f"P({event})",
        f"frequency of {event}",
        "too high",
        "too low",
        event,
        f"not {event}",
        f"mean P({event})",
    )


def reliability_diagram(
    table: "Reliability | Bins", level: float = 0.95, wording: Wording = TOP_LABEL
) -> "Figure":
    """Draw accuracy over confidence, one mark per bin with its interval.

    Below the line the model is too sure. A bin whose interval holds its confidence is neutral. Of a
    binary model, `probability_wording("class 1")` names the axes P(class 1) and frequency of class
    1.

    The area of a mark is the share of the samples in its bin. `level` is that of the intervals.

    >>> from toosure.metrics.binned import reliability_from_confidence
    >>> table = reliability_from_confidence([0.9, 0.8, 0.7], [True, False, True], bins=2)
    >>> reliability_diagram(table).layout.xaxis.title.text
    'confidence, %'
    """
    import plotly.graph_objects as go

    bins = filled_bins(table)
    interval = f"{100 * level:g} % interval"
    drawing = go.Figure(layout=PLAIN_LAYOUT)
    drawing.add_scatter(
        **{"x": [0, 100], "y": [0, 100], "mode": "lines", "hoverinfo": "skip"},
        **{"name": "calibrated", "line": {"color": QUIET, "width": 1.5, "dash": "dash"}},
    )
    names = (wording.over, wording.under, "within chance")
    for mask, name, (colour, symbol) in zip(sides(bins), names, SIDES, strict=True):
        if mask.any():
            chosen = {key: values[mask] for key, values in bins.items()}
            drawing.add_trace(marks(chosen, name, colour, symbol, interval, wording))
    drawing.update_xaxes(title_text=f"{wording.claimed}, %", range=[0, 100], dtick=20)
    drawing.update_yaxes(title_text=f"{wording.true}, %", range=[0, 100], dtick=20)
    return drawing


SIDES = ((OVER, "circle"), (UNDER, "diamond"), (NEUTRAL, "square"))  # in the order of `sides`


def sides(bins: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which bins are over-confident, which under-confident, and which may be neither."""
    over = bins["high"] < bins["confidence"]
    under = bins["low"] > bins["confidence"]
    return over, under, ~over & ~under


def filled_bins(table: "Reliability | Bins") -> dict[str, np.ndarray]:
    """Return the bins that hold samples, in per cent, as arrays by name."""
    edges, counts, accuracy, confidence, interval = map(as_array, table)
    low, high = interval.T
    columns = {"accuracy": 100 * accuracy, "confidence": 100 * confidence}
    columns |= {"low": 100 * low, "high": 100 * high, "share": 100 * counts / counts.sum()}
    columns |= {"left": 100 * edges[:-1], "right": 100 * edges[1:], "counts": counts}
    return {name: values[counts > 0] for name, values in columns.items()}


def marks(
    bins: dict[str, np.ndarray],
    name: str,
    colour: str,
    symbol: str,
    interval: str,
    wording: Wording = TOP_LABEL,
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
        hovertemplate=f"{wording.claimed} %{{x:.1f}} %<br>{wording.true} %{{y:.1f}} %<br>"
        "%{customdata[0]:,} samples"
        f"<br>{interval} %{{customdata[1]:.1f}} to %{{customdata[2]:.1f}} %<extra></extra>",
    )


def confidence_histogram(table: "Reliability | Bins", wording: Wording = TOP_LABEL) -> "Figure":
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
    drawing = go.Figure([bars(bins, right, wording.right, NEUTRAL, wording)], PLAIN_LAYOUT)
    drawing.add_trace(bars(bins, bins["share"] - right, wording.wrong, INK, wording))
    top = 1.05 * bins["share"].max()
    for name, value, dash in (
        (wording.true, means["accuracy"], "dot"),
        (wording.mean_claimed, means["confidence"], "solid"),
    ):
        drawing.add_scatter(
            **{"x": [value, value], "y": [0, top], "mode": "lines", "hoverinfo": "skip"},
            **{"name": f"{name} {value:.1f} %", "line": {"color": QUIET, "width": 2, "dash": dash}},
        )
    drawing.update_layout(barmode="stack", bargap=0)
    drawing.update_xaxes(title_text=f"{wording.claimed}, %", range=[0, 100], dtick=20)
    drawing.update_yaxes(title_text="samples, %", rangemode="tozero", nticks=6)
    return drawing


def bars(
    bins: dict[str, np.ndarray],
    height: np.ndarray,
    name: str,
    colour: str,
    wording: Wording = TOP_LABEL,
) -> "Bar":
    """Return a bar for each bin, as wide as the bin."""
    import plotly.graph_objects as go

    left = bins["left"]
    right = bins["right"]
    return go.Bar(
        x=(left + right) / 2,
        y=height,
        width=0.92 * (right - left),
        name=name,
        marker={"color": colour, "line": {"width": 0}},
        customdata=np.stack([left, right], 1),
        hovertemplate=f"{wording.claimed} %{{customdata[0]:.1f}} to %{{customdata[1]:.1f}} %<br>"
        f"{name}: %{{y:.2f}} % of the samples<extra></extra>",
    )


def as_array(values: Any) -> np.ndarray:
    """Return an array of numpy, also of a tensor on a GPU."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)


def margin_histogram(edges: np.ndarray, counts: np.ndarray) -> "Figure":
    """Draw the margins of samples in logits; above 0 they are classified right.

    >>> drawing = margin_histogram(np.array([-1.0, 0.0, 1.0, 2.0]), np.array([1, 2, 1]))
    >>> [bar.name for bar in drawing.data], drawing.data[1].y.tolist()
    (['wrong', 'right'], [50.0, 25.0])
    """
    import plotly.graph_objects as go

    left = edges[:-1]
    right = edges[1:]
    centre = (left + right) / 2
    share = 100 * counts / max(1, counts.sum())
    drawing = go.Figure(layout=PLAIN_LAYOUT)
    for mask, name, colour in ((centre < 0, "wrong", INK), (centre >= 0, "right", NEUTRAL)):
        drawing.add_bar(
            **{"x": centre[mask], "y": share[mask], "width": 0.92 * (right - left)[mask]},
            **{"name": name, "marker": {"color": colour, "line": {"width": 0}}},
            hovertemplate="margin %{x:.3g}: %{y:.2f} % of the samples<extra></extra>",
        )
    drawing.update_layout(barmode="overlay", bargap=0)
    drawing.update_xaxes(title_text="true margin, logits", zeroline=True, zerolinecolor=QUIET)
    drawing.update_yaxes(title_text="samples, %", rangemode="tozero", nticks=6)
    return drawing
