"""The style of all figures: colours for all kinds of eyesight, on light and dark pages."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

INK = "#1d2229"
QUIET = "#5c6672"
LINE = "#dbe0e6"
# Two colours mean over- and under-confident everywhere, and no run has them. After Okabe & Ito
# (2008): all eyes tell them apart.
ORANGE = "#d55e00"
BLUE = "#0072b2"
OVER = ORANGE
UNDER = BLUE
NEUTRAL = "#7d8793"  # may be chance
# Runs: as different from those two, and from each other, as lines on white can be.
TEAL = "#00818f"
VIOLET = "#6f4bc0"
MAGENTA = "#b5308a"
OLIVE = "#7d7a00"
BROWN = "#5d4037"
GREEN = "#2f8a3e"
PALETTE = (TEAL, MAGENTA, OLIVE, VIOLET, BROWN, GREEN)
DARK = {  # the colours of a dark page
    **{INK: "#e7eaee", QUIET: "#9da7b3", LINE: "#323942"},
    **{BLUE: "#56b4e9", ORANGE: "#f0a050", NEUTRAL: "#8b95a1"},
    **{TEAL: "#4cc5d0", VIOLET: "#b59cf0", MAGENTA: "#ef86c4"},
    **{OLIVE: "#cfc94a", BROWN: "#e7b7b0", GREEN: "#6fce7e"},
}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
CLEAR = "rgba(0,0,0,0)"


# The axis that all figures share: a quiet grid and nothing else.
PLAIN_AXIS: dict[str, Any] = {
    **{"gridcolor": LINE, "linecolor": LINE, "zeroline": False, "ticks": ""},
    **{"tickfont": {"color": QUIET}, "title": {"font": {"color": QUIET}, "standoff": 12}},
    **{"automargin": True, "fixedrange": True},
}
# The layout that all figures share: no frame, the legend above.
PLAIN_LAYOUT: dict[str, Any] = {
    "template": "none",
    "autosize": True,
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "font": {"family": FONT, "size": 13, "color": INK},
    "margin": {"l": 50, "r": 22, "t": 12, "b": 48},
    "xaxis": PLAIN_AXIS,
    "yaxis": PLAIN_AXIS,
    "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left", "namelength": -1},
    "legend": {
        **{"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        **{"font": {"color": INK}, "traceorder": "normal"},
        **{"itemclick": False, "itemdoubleclick": False},
    },
}


def log_axis(values: Iterable[np.ndarray]) -> dict[str, Any]:
    """Return a log axis with few, round ticks: decades if there are some, 1, 2, 5, or closer.

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

    dtick: int | str = 1
    if decades >= 2:
        dtick = math.ceil(decades / 6)
    elif decades:
        dtick = "D2"  # 1, 2 and 5 of each decade
    long = decades >= 2 and (logs.min() < -3.5 or logs.max() > 4)
    return {"type": "log", "tickformat": ".0e" if long else "~g", "dtick": dtick}


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers around a stretch, at least two of them in it."""
    least = (high - low) / 5
    unit = 10 ** math.floor(math.log10(least))
    step = next((k * unit for k in (1, 2, 5) if k * unit >= least), 10 * unit)
    places = range(math.ceil(low / step) - 1, math.floor(high / step) + 2)
    return [float(f"{k * step:.6g}") for k in places if k > 0]
