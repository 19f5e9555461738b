"""The one look of all figures: colours that all eyes tell apart, on light and dark paper."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

INK = "#1d2229"
QUIET = "#5c6672"
LINE = "#dbe0e6"
# After Okabe & Ito (2008), darkened where they are too pale for a line on white.
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#00835f"
PURPLE = "#b0568d"
OCHRE = "#9a7200"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, OCHRE, QUIET)
DARK = {  # what a dark page draws in their place
    **{INK: "#e7eaee", QUIET: "#9da7b3", LINE: "#323942"},
    **{BLUE: "#56b4e9", ORANGE: "#f0a050", GREEN: "#4cc9a0", PURPLE: "#e79bcb", OCHRE: "#e3d35c"},
}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
CLEAR = "rgba(0,0,0,0)"


def plain_axis() -> dict[str, Any]:
    """Return the axis that all figures share: a quiet grid and nothing else."""
    return {
        **{"gridcolor": LINE, "linecolor": LINE, "zeroline": False, "ticks": ""},
        **{"tickfont": {"color": QUIET}, "title": {"font": {"color": QUIET}, "standoff": 12}},
        **{"automargin": True, "fixedrange": True},
    }


def plain_layout() -> dict[str, Any]:
    """Return the layout that all figures share: no frame, quiet grid, legend above."""
    return {
        "template": "none",
        "autosize": True,
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 50, "r": 22, "t": 12, "b": 48},
        "xaxis": plain_axis(),
        "yaxis": plain_axis(),
        "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left", "namelength": -1},
        "legend": {
            **{"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            **{"font": {"color": INK}, "traceorder": "normal"},
            **{"itemclick": False, "itemdoubleclick": False},
        },
    }


def log_axis(values: Iterable[np.ndarray]) -> dict[str, Any]:
    """Return a log axis with few, round ticks: decades where there are some, 1, 2, 5, or closer.

    >>> log_axis([np.array([0.01, 10.0])])["dtick"], log_axis([np.array([2.0, 19.0])])["dtick"]
    (1, 'D2')
    >>> log_axis([np.array([18.0, 25.0])])["tickvals"]
    [16.0, 18.0, 20.0, 22.0, 24.0, 26.0]
    """
    positive = [part[(part > 0) & np.isfinite(part)] for part in values]
    logs = np.concatenate([np.log10(part) for part in positive] or [np.zeros(1)])
    decades = float(np.ptp(logs)) if len(logs) else 0.0
    if 0 < decades < 0.8:  # 1, 2, 5 would leave a single label
        ticks = round_ticks(float(10 ** logs.min()), float(10 ** logs.max()))
        return {"type": "log", "tickformat": "~g", "tickmode": "array", "tickvals": ticks}

    dtick = math.ceil(decades / 6) if decades >= 2 else "D2" if decades else 1
    long = decades >= 2 and (logs.min() < -3.5 or logs.max() > 4)
    return {"type": "log", "tickformat": ".0e" if long else "~g", "dtick": dtick}


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers around a stretch, at least two of them in it."""
    least = (high - low) / 5
    unit = 10 ** math.floor(math.log10(least))
    step = next((k * unit for k in (1, 2, 5) if k * unit >= least), 10 * unit)
    places = range(math.ceil(low / step) - 1, math.floor(high / step) + 2)
    return [float(f"{k * step:.6g}") for k in places if k > 0]


def as_text(name: str) -> str:
    """Escape a name for Plotly, which reads some tags in its texts.

    >>> as_text("<b>a & b</b>")
    '&lt;b&gt;a &amp; b&lt;/b&gt;'
    """
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
