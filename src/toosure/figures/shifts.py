"""How a score changes with the severity of corruptions: one line per setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from toosure.figures.style import PALETTE, PLAIN_LAYOUT, QUIET
from toosure.quantities import QUANTITIES
from toosure.shifts.record import ShiftRecord, mean

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class ShiftLine:
    """A setting: its name, its index in the palette, and the records of its seeds."""

    label: str
    place: int
    records: Sequence[ShiftRecord]


def shifts_figure(settings: Sequence[ShiftLine], metric: str) -> "Figure":
    """Draw a score against severity, means over corruptions and seeds.

    Severity 0 is the clean test set. A single setting also gets a thin line per corruption.

    >>> scores = {"accuracy": 0.8, "nll": 0.6, "ece": 0.1, "smece": 0.1}
    >>> record = ShiftRecord(9, 9, scores, {("fog", 1): scores | {"ece": 0.2}})
    >>> shifts_figure([ShiftLine("sgd", 0, [record])], "ece").data[1].y.tolist()
    [10.0, 20.0]
    """
    import plotly.graph_objects as go

    traces = [mean_line(setting, metric) for setting in settings]
    if len(settings) == 1:
        traces = [*corruption_lines(settings[0], metric), *traces]

    drawing = go.Figure(traces, PLAIN_LAYOUT | {"showlegend": len(settings) > 1})
    drawing.update_xaxes(dtick=1, title_text="severity (0: clean)")
    drawing.update_yaxes(title_text=QUANTITIES[metric].heading, nticks=6)
    return drawing


def mean_line(setting: ShiftLine, metric: str) -> dict[str, Any]:
    """Return the line of a setting: its mean over corruptions and seeds at each severity."""
    severities = [0, *common_severities(setting.records)]
    values = [mean([each.at(metric, s) for each in setting.records]) for s in severities]
    colour = PALETTE[setting.place % len(PALETTE)]
    name = escape(setting.label, quote=False)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": severities,
        "y": in_units(values, metric),
        "name": name,
        "line": {"color": colour, "width": 1.8},
        "marker": {"color": colour, "size": 6},
        "hovertemplate": f"{name}<br>severity %{{x}}: <b>%{{y:.4g}}</b><extra></extra>",
    }


def corruption_lines(setting: ShiftLine, metric: str) -> list[dict[str, Any]]:
    """Return a thin line per corruption, the mean over seeds."""
    traces: list[dict[str, Any]] = []
    severities = common_severities(setting.records)
    for corruption in setting.records[0].corruptions:
        by_seed = [
            [record.cells[corruption, severity][metric] for severity in severities]
            for record in setting.records
            if record.covers([corruption], severities)
        ]
        if not by_seed:
            continue

        clean = mean([record.clean[metric] for record in setting.records])
        values = [clean, *np.mean(by_seed, axis=0).tolist()]
        name = escape(corruption, quote=False)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [0, *severities],
                "y": in_units(values, metric),
                "name": name,
                "showlegend": False,
                "opacity": 0.5,
                "line": {"color": QUIET, "width": 1},
                "hovertemplate": f"{name}<br>severity %{{x}}: <b>%{{y:.4g}}</b><extra></extra>",
            }
        )
    return traces


def common_severities(records: Sequence[ShiftRecord]) -> list[int]:
    """Return the severities that all seeds of a setting were judged at."""
    shared = set.intersection(*(set(record.severities) for record in records))
    return sorted(shared)


def in_units(values: Sequence[float], metric: str) -> np.ndarray:
    """Return values in the units shown: shares in per cent or points."""
    return QUANTITIES[metric].scale * np.asarray(values, dtype=np.float64)
