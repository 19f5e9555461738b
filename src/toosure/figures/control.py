"""How a controller steered: its sensor with the dead band, and its actuator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toosure.figures.groups import Group, Measured, group_runs
from toosure.figures.style import LINE
from toosure.figures.trajectory import draw_axes, line

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SENSORS = ("control/log_temperature", "control/gap")
ACTUATORS = ("control/rho", "control/gamma")
EVENTS = {  # flags of rows, with their mark and what it says
    "control/gave_up": ("x", "gave up, and set it back"),
    "control/held": ("square", "held from here; soon the control split is trained on"),
}
MOVES = {-1: "lowered", 0: "left alone", 1: "raised"}


def control_panels(runs: Sequence[Measured]) -> list[str]:
    """Return the panels for which some run has data: sensors, then actuators."""
    return [key for key in (*SENSORS, *ACTUATORS) if any(has(run, key) for run in runs)]


def control_figure(
    runs: Sequence[Measured], points: int = 1000, groups: Sequence[tuple[int, Group]] = ()
) -> "Figure":
    """Draw sensor and actuator of controlled runs along training, one panel each.

    Between the dashed lines, the dead band, the controller leaves the actuator alone. `groups` are
    those of the runs with their places in the palette, where other figures name and colour them.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.arange(2), "control/log_temperature": np.array([0.1, 0.0])}
    >>> columns |= {"control/standard_error": np.full(2, 0.02), "control/band": np.full(2, 2.0)}
    >>> drawing = control_figure([Row(name="mine", config={}, columns=columns)])
    >>> [trace.y.tolist()[0] for trace in drawing.data]
    [0.10000000149011612, 0.03999999910593033, -0.03999999910593033]
    """
    from plotly.subplots import make_subplots

    panels = control_panels(runs)
    groups = groups or list(enumerate(group_runs(runs)))
    drawing = make_subplots(len(panels), 1, shared_xaxes=True, vertical_spacing=0.12 / len(panels))
    for row, key in enumerate(panels, 1):
        traces: list[dict[str, Any]] = []
        for place, group in groups:
            for number in range(len(group.runs)):
                traces += traces_of(group, number, place, key, points)
        drawing.add_traces(traces, rows=[row] * len(traces), cols=[1] * len(traces))

    draw_axes(drawing, panels)
    for row, key in enumerate(panels, 1):
        if key in SENSORS:
            drawing.update_yaxes(zeroline=True, zerolinecolor=LINE, zerolinewidth=2, row=row, col=1)
        else:  # moved by factors
            drawing.update_yaxes(type="log", row=row, col=1)
    return drawing


def traces_of(group: Group, number: int, place: int, key: str, points: int) -> list[dict[str, Any]]:
    """Return a run's line in a panel and, of a sensor, the two edges of its dead band."""
    run = group.runs[number]
    if not has(run, key):
        return []
    values = np.asarray(run.columns[key], dtype=float)
    traces = [line(group, number, place, key, "", values, points)]
    acted = run.columns.get("control/acted")
    if key in SENSORS and acted is not None:
        traces[0] |= moves(values, acted, points)

    if key in ACTUATORS:
        traces += events_of(run, key, traces[0])

    errors = run.columns.get("control/standard_error")
    widths = run.columns.get("control/band")  # in standard errors
    if key in SENSORS and errors is not None and widths is not None:
        band = np.asarray(widths, dtype=float) * np.asarray(errors, dtype=float)
        for edge in (band, -band):
            trace = line(group, number, place, key, "", edge, points)
            trace["line"] |= {"dash": "dash", "width": 1}
            trace["hoverinfo"] = "skip"
            del trace["hovertemplate"]
            traces.append(trace)
    return traces


def events_of(run: Measured, key: str, drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a mark on the line of an actuator where the controller gave up, and where it held.

    It held from the last point before the first row that says so, which may come much later.
    """
    marks = []
    for flag, (symbol, text) in EVENTS.items():
        if not has(run, flag):
            continue
        drawn_points = np.flatnonzero(np.isfinite(run.columns[key]))
        raised = np.flatnonzero(np.asarray(run.columns[flag], dtype=float)[drawn_points] == 1)
        if not len(raised):
            continue
        place = max(raised[0] - 1, 0) if flag == "control/held" else raised[0]
        point = drawn_points[place : place + 1]

        marker = {"symbol": symbol, "size": 10, "color": drawn["line"]["color"]}
        template = f"{drawn['name']}<br>step %{{x:,}}: <b>{text}</b><extra></extra>"
        marks.append(
            drawn
            | {"mode": "markers", "marker": marker, "hovertemplate": template}
            | {"x": run.columns["step"][point], "y": run.columns[key][point]}
        )
    return marks


def moves(values: np.ndarray, acted: np.ndarray, points: int) -> dict[str, Any]:
    """Return the action of the look at each point, for the hover text."""
    finite = np.isfinite(values)
    if finite.sum() > points:
        return {}
    known = np.nan_to_num(np.asarray(acted, dtype=float)[finite])
    texts = [MOVES.get(int(each), "") for each in known]
    template = "step %{x:,}: <b>%{y:.4g}</b>, %{text}<extra></extra>"
    return {"text": texts, "hovertemplate": template}


def has(run: Measured, key: str) -> bool:
    values = run.columns.get(key)
    return values is not None and bool(np.isfinite(values).any())
