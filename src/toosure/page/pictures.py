"""Small pictures as SVG files, for pages without scripts: gaps, and lines along training."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from toosure.figures.style import FONT, INK, LINE, NEUTRAL, OVER, PALETTE, QUIET, UNDER
from toosure.figures.thinning import thin
from toosure.figures.trajectory import values_of
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.ranking import RankedSetting
from toosure.quantities import described

WIDTH = 640
ROW = 24  # height of a line of text
MAX_BARS = 20
MAX_LINES = len(PALETTE)
COLOURS = {"over": OVER, "under": UNDER}
MAX_NAME = 44  # letters
BARS_LEFT = 300.0  # where the bars of the gaps begin, right of the names
BARS_WIDTH = 320.0
CURVE_POINTS = 200
LEFT, RIGHT, TOP, BOTTOM = 60.0, WIDTH - 16.0, 24.0, 240.0  # of the lines along training
LEGEND_ROW = 18
LEGEND_TOP = BOTTOM + 40
Curve = tuple[str, np.ndarray, np.ndarray]  # label, steps, values


def picture(height: float, *parts: str) -> str:
    """Return an SVG on white paper."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="{escape(FONT)}" font-size="12">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = INK) -> str:
    """Return a line of text, shortened if it is long."""
    short = content if len(content) <= MAX_NAME else f"{content[: MAX_NAME - 1]}…"
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}">{escape(short)}</text>'


def line(points: Sequence[tuple[float, float]], colour: str, width: float = 1.0) -> str:
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def gap_picture(page: PageRuns) -> str:
    """Return the gap of each setting with its interval; empty if no setting has one."""
    known = [each for each in page.ranked_settings if math.isfinite(each.verdict.gap)][:MAX_BARS]
    if not known:
        return ""
    ends = [0.0, *(end for each in known for end in ends_of(each))]
    low, high = min(ends), max(max(ends), min(ends) + 1)

    def place(points: float) -> float:
        return BARS_LEFT + BARS_WIDTH * (points - low) / (high - low)

    parts = [text(place(0), 16, "confidence minus accuracy, points", "middle", QUIET)]
    for number, setting in enumerate(known):
        middle = ROW * (number + 1.5)
        parts.append(text(BARS_LEFT - 10, middle + 4, setting.label, "end"))

        left, right = sorted((place(0), place(setting.verdict.gap)))
        colour = COLOURS.get(setting.verdict.kind, NEUTRAL)
        opacity = 0.45 if setting.is_weak or setting.verdict.kind not in COLOURS else 1
        parts.append(
            f'<rect x="{left:.1f}" y="{middle - 6}" width="{right - left:.1f}" height="12" '
            f'fill="{colour}" fill-opacity="{opacity}"/>'
        )
        start, end = ends_of(setting)
        parts.append(line([(place(start), middle), (place(end), middle)], INK, 1.3))

    bottom = ROW * (len(known) + 1)
    parts.append(line([(place(0), ROW), (place(0), bottom)], QUIET))
    return picture(bottom + 12, *parts)


def ends_of(setting: RankedSetting) -> tuple[float, float]:
    """Return the ends of the interval of a gap, or the gap twice if there is none."""
    gap = setting.verdict.gap
    return setting.verdict.ends if math.isfinite(setting.verdict.half_width) else (gap, gap)


def line_picture(page: PageRuns, key: str) -> str:
    """Return a quantity along training, mean over seeds, for the first settings; or nothing."""
    curves = curves_of(page, key)
    if not curves:
        return ""

    steps = np.concatenate([x for _, x, _ in curves])
    heights = np.concatenate([y for _, _, y in curves])
    x_span = max(float(np.ptp(steps)), 1e-9)
    y_span = max(float(np.ptp(heights)), 1e-9)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (RIGHT - LEFT) * (x - steps.min()) / x_span
        return across, BOTTOM - (BOTTOM - TOP) * (y - heights.min()) / y_span

    parts = [text(LEFT, 14, described(key).heading, colour=QUIET)]
    for value in (heights.min(), heights.max()):
        height = place(steps.min(), value)[1]
        parts.append(line([(LEFT, height), (RIGHT, height)], LINE))
        parts.append(text(LEFT - 6, height + 4, printed(float(value), ".3g"), "end", QUIET))
    parts.append(text(LEFT, BOTTOM + 18, printed(float(steps.min()), ",.0f"), colour=QUIET))
    parts.append(text(RIGHT, BOTTOM + 18, f"step {steps.max():,.0f}", "end", QUIET))

    for number, (label, x, y) in enumerate(curves):
        colour = PALETTE[page.places[label] % len(PALETTE)]
        parts.append(line([place(*point) for point in zip(x, y, strict=True)], colour, 1.8))
        parts += legend_entry(label, colour, LEGEND_TOP + LEGEND_ROW * number)
    return picture(LEGEND_TOP + LEGEND_ROW * len(curves), *parts)


def curves_of(page: PageRuns, key: str) -> list[Curve]:
    """Return the mean over seeds of a quantity for each of the first settings that has it."""
    curves = []
    for setting in page.ranked_settings[:MAX_LINES]:
        run = setting.group.runs[0]
        seeds = [values_of(each, each.split, key) for each in setting.group.runs]
        known = [values for values in seeds if values is not None and len(values) == run.count]
        if known:
            steps, means = thin(run.columns["step"], np.mean(known, axis=0), CURVE_POINTS)
            curves.append((setting.label, steps, means))
    return curves


def legend_entry(label: str, colour: str, row: float) -> list[str]:
    """Return a short line in the colour of a setting, and its name behind it."""
    mark = line([(LEFT, row - 4), (LEFT + 18, row - 4)], colour, 2.5)
    return [mark, text(LEFT + 26, row, label)]
