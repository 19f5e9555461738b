"""Quantities along training: one panel each over the same steps, one line per run."""

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from toosure.figures.groups import Group, Measured, group_runs
from toosure.figures.style import LINE, PALETTE, PLAIN_AXIS, PLAIN_LAYOUT, QUIET, log_axis
from toosure.figures.thinning import extremes
from toosure.quantities import described, own_keys, shown_in

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


NAMES = {"val": "validation", "train": "training", "": "run"}
FAR = 300  # a factor from the largest sharpness, up or down


def trajectory(
    runs: Sequence[Measured],
    panels: str | Sequence[str] | None = None,
    splits: Sequence[str] = ("val", "train"),
    points: int = 1000,
) -> "Figure":
    """Draw quantities of runs along training: validation solid, training dotted, seeds alike.

    Without `panels`, all quantities that some run has are drawn: known ones, then the user's own.
    Long runs are thinned to `points` per line without losing their peaks. Sharpness is drawn with
    the edge of stability of the rate (`stability`), for runs that have one.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.arange(3), "val/ece": np.array([0.1, 0.2, 0.15])}
    >>> drawing = trajectory([Row(name="mine", config={}, columns=columns)], ["ece"])
    >>> drawing.data[0].y.tolist(), drawing.layout.yaxis.title.text
    ([10.0, 20.0, 15.0], 'ECE, points')
    """
    from plotly.subplots import make_subplots

    panels = [panels] if isinstance(panels, str) else panels
    check_panels(runs, panels or [])
    panels = panels or panel_keys(runs) or ["loss"]
    drawing = make_subplots(len(panels), 1, shared_xaxes=True, vertical_spacing=0.12 / len(panels))
    groups = group_runs(runs)
    for row, key in enumerate(panels, 1):
        traces = panel_lines(groups, key, splits, points)
        if key == "gn_sharpness":
            traces += edges(groups, points)
        drawing.add_traces(traces, rows=[row] * len(traces), cols=[1] * len(traces))

    draw_axes(drawing, panels)
    return drawing


def panel_lines(
    groups: Sequence[Group], key: str, splits: Sequence[str], points: int
) -> list[dict[str, Any]]:
    """Return the lines of a quantity: one for each run and split that has it."""
    traces = []
    for place, group in enumerate(groups):
        for number, run in enumerate(group.runs):
            for split in (*splits, ""):
                values = values_of(run, split, key)
                if values is not None:
                    traces.append(line(group, number, place, key, split, values, points))
    return traces


def panel_keys(runs: Sequence[Measured]) -> list[str]:
    """Return the panels for which some run has data; unknown quantities come last."""
    known = [q.key for q in shown_in("panel")]
    written = dict.fromkeys(key for run in runs for key in run.columns)
    own = [key.removeprefix("train/").removeprefix("val/") for key in own_keys(list(written))]
    return [key for key in dict.fromkeys([*known, *own]) if has_panel(runs, key)]


def check_panels(runs: Sequence[Measured], panels: Sequence[str]) -> None:
    """Raise on a panel for which runs that have rows have no number."""
    there = panel_keys(runs)
    for key in panels:
        if there and not has_panel(runs, key):
            raise ValueError(f"no run has {key!r}; there are {', '.join(there)}")


def draw_axes(drawing: "Figure", panels: Sequence[str]) -> None:
    """Give a figure of panels its axes, its height, and a legend that names each group once."""
    drawing.update_layout(PLAIN_LAYOUT, height=260 * len(panels) if len(panels) > 1 else None)
    drawing.update_xaxes(PLAIN_AXIS | {"fixedrange": False})
    drawing.update_xaxes(title_text="step", row=len(panels), col=1)

    for row, key in enumerate(panels, 1):
        quantity = described(key)
        axis = PLAIN_AXIS | {"title": {"text": quantity.heading, "font": {"color": QUIET}}}
        drawing.update_yaxes(axis, row=row, col=1, nticks=6, tickformat="~g")
        if quantity.log:
            traces = drawing.select_traces(row=row, col=1)
            drawing.update_yaxes(log_axis(trace.y for trace in traces), row=row, col=1)
        if key == "gap":
            drawing.update_yaxes(zeroline=True, zerolinecolor=LINE, zerolinewidth=2, row=row, col=1)

    first_lines = {trace.legendgroup: trace for trace in reversed(drawing.data)}
    for trace in first_lines.values():
        trace.showlegend = True
    drawing.update_layout(showlegend=len(drawing.data) > 1)


def values_of(run: Measured, split: str, key: str) -> np.ndarray | None:
    """Return a quantity in the unit of its panel; None if the run lacks it.

    The split "" stands for numbers of the whole row.
    """
    columns = run.columns
    name = f"{split}/{key}" if split else key
    values = columns.get(name)
    with np.errstate(over="ignore", invalid="ignore"):  # rows may hold any number
        if key == "gap" and split:
            confidence = columns.get(f"{split}/confidence")
            accuracy = columns.get(f"{split}/accuracy")
            if confidence is not None and accuracy is not None:
                values = confidence - accuracy
        if values is None or not np.isfinite(values).any():
            return None
        return described(key).scale * values


def has_panel(runs: Sequence[Measured], key: str) -> bool:
    """Whether a run has a quantity, on validation or training data or for the whole row."""
    return any(values_of(run, split, key) is not None for run in runs for split in NAMES)


def line(
    group: Group,
    number: int,
    place: int,
    key: str,
    split: str,
    values: np.ndarray,
    points: int,
) -> dict[str, Any]:
    """Return the line of one run of a group, thinned to `points` without losing a peak.

    To stay small it has integer steps and values in single precision. Names are escaped, because
    Plotly interprets some tags in texts.
    """
    run = group.runs[number]
    finite = np.isfinite(values)
    x = run.columns["step"][finite]
    y = values[finite]
    if len(y) > points:
        kept = extremes(y, points)
        x = x[kept]
        y = y[kept]

    name = escape(group.names[number], quote=False)
    solid = split != "train"
    whole = np.abs(x).max(initial=0) <= np.iinfo(np.int32).max
    return {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "x": x.astype(np.int32) if whole else x,
        "y": y.astype(np.float32),
        "name": escape(group.label, quote=False),
        "legendgroup": str(place),
        "showlegend": False,
        "line": {
            "color": PALETTE[place % len(PALETTE)],
            "width": 1.8 if solid else 1.3,
            "dash": "solid" if solid else "dot",
        },
        "meta": {
            "group": place,
            "split": split,
            "run": getattr(run, "id", run.name),
            "key": key,
        },
        "hovertemplate": f"{name}<br>{NAMES.get(split, split)}, "
        "step %{x:,}: <b>%{y:.4g}</b><extra></extra>",
    }


def edges(groups: Sequence[Group], points: int) -> list[dict[str, Any]]:
    """Return the stability lines of groups; a line that several share appears once."""
    traces: list[dict[str, Any]] = []
    for place, group in enumerate(groups):
        run = group.runs[0]
        edge = drawn_edge(run)
        if edge is None:
            continue

        trace = line(group, 0, place, "stability", "edge", edge, points)
        trace["line"] |= {"dash": "dash", "width": 1.2}
        trace["opacity"] = 0.75
        name = escape(group.label, quote=False)
        trace["hovertemplate"] = f"{name}<br>edge of stability: <b>%{{y:.4g}}</b><extra></extra>"
        traces.append(trace)
    return traces


def drawn_edge(run: Measured) -> np.ndarray | None:
    """Return the edge of stability of a run; None if it has none, or far from its sharpness.

    A line far away would flatten the others.
    """
    edge = stability(run)
    sharpness = run.columns.get("train/gn_sharpness")
    if edge is None or sharpness is None or not np.isfinite(sharpness).any():
        return edge
    top = np.nanmax(sharpness)
    is_far = np.nanmax(edge) < top / FAR or np.nanmin(edge) > FAR * top
    return None if is_far else edge


def stability(run: Measured) -> np.ndarray | None:
    """Return the sharpness above which gradient descent is unstable, one value per row.

    It is 2 / lr; (2 + 2 beta) / lr with momentum beta, (2 + 2 beta) / ((1 + 2 beta) lr) with
    Nesterov's (Cohen et al. 2021, arXiv:2103.00065, App. B). None for optimizers that rescale or
    perturb the gradient (AdamW, Muon, the SAM family), whose edge depends on more than the rate.

    >>> from types import SimpleNamespace as Row
    >>> run = Row(config={"optimizer": "sgd:lr=0.5,momentum=0.5"}, columns={"step": np.arange(2)})
    >>> stability(run).tolist()
    [6.0, 6.0]
    """
    name, _, rest = str(run.config.get("optimizer", "")).partition(":")
    settings = dict(re.findall(r"(\w+)=([^,]+)", rest))
    if name not in ("sgd", "gd") or "step" not in run.columns:
        return None

    rate = run.columns.get("lr")
    if rate is None:
        rate = np.full(len(run.columns["step"]), number(settings.get("lr"), np.nan))

    beta = number(settings.get("momentum"), 0.0)
    factor = 2 + 2 * beta
    if settings.get("nesterov", "false").lower() in ("true", "1", "yes"):
        factor /= 1 + 2 * beta

    with np.errstate(divide="ignore"):
        edge = factor / np.asarray(rate, dtype=float)
    return edge if np.isfinite(edge).any() else None


def number(text: str | None, otherwise: float) -> float:
    """Read the number of a setting; return `otherwise` if it is not given, or no number."""
    try:
        return float(text) if text is not None else otherwise
    except ValueError:
        return otherwise
