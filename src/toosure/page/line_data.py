"""The lines of all panels for the scripts of a page: columns of runs, thinned and packed."""

import json
from typing import Any

import numpy as np

from toosure.figures import Group
from toosure.figures.groups import settings_of
from toosure.figures.phase import paired
from toosure.figures.style import PALETTE
from toosure.figures.thinning import extremes
from toosure.figures.trajectory import NAMES, drawn_edge, values_of
from toosure.page.html import in_script
from toosure.page.packing import ArrayPool, as_steps
from toosure.page.page_runs import PageRuns
from toosure.quantities import described
from toosure.runs import Run

MAX_POINTS = 400_000  # on one page, at 8 to 11 bytes each
MIN_LINE_POINTS = 60  # of a line, however many there are
MAX_LINE_POINTS = 1000  # more than a panel has pixels
Line = list[Any]  # run, split, place of its steps, place of its values


def line_script(page: PageRuns) -> str:
    """Return the element that holds every setting, run and line of a page."""
    text = in_script(json.dumps(line_data(page), separators=(",", ":"), allow_nan=False))
    return f'<script type="application/json" id="lines">{text}</script>'


def line_data(page: PageRuns) -> dict[str, Any]:
    """Return settings in the order of the page, runs, and for each panel its lines."""
    pool = ArrayPool()
    keys = page.panel_keys
    points = points_per_line(len(keys), len(page.runs))

    runs = [run for _, run in page.named]
    names = [name for name, _ in page.named]
    places = [place for place, group in enumerate(page.groups) for _ in group.runs]
    return {
        "palette": PALETTE,
        "groups": [group_record(page, place) for place in range(len(page.groups))],
        "runs": [[run.id, *rest] for run, *rest in zip(runs, names, places, strict=True)],
        "panels": [panel_of(key, runs, pool, points) for key in keys],
        "phase": phase_lines(runs, pool, points // 2),
        "arrays": pool.arrays,
    }


def points_per_line(panels: int, runs: int) -> int:
    """Return how many points a line may have, so that all lines fit into the limit of a page.

    A run has a line of training and one of validation in each panel, and two paths of the phase
    portrait, whose points have three numbers.
    """
    lines = 2 * (panels + 2) * max(1, runs)
    return max(MIN_LINE_POINTS, min(MAX_LINE_POINTS, MAX_POINTS // lines))


def group_record(page: PageRuns, place: int) -> dict[str, Any]:
    """Return a setting for the scripts: its name, colour, settings and last numbers."""
    setting = page.ranked_settings[place]
    group: Group = setting.group
    numbers = {key: value for key, value in setting.values.items() if np.isfinite(value)}
    return {
        "label": group.label,
        "colour": page.places[group.label] % len(PALETTE),
        "settings": settings_of(group.runs[0].config),
        "data": setting.data,
        "ranked": setting.is_ranked,
        "numbers": {key: float(f"{value:.6g}") for key, value in numbers.items()},
    }


def panel_of(key: str, runs: list[Run], pool: ArrayPool, points: int) -> dict[str, Any]:
    """Return one panel: how it is drawn, and a line per run and split that has the quantity."""
    quantity = described(key)
    lines: list[Line] = []
    for place, run in enumerate(runs):
        for split in NAMES:
            values = values_of(run, split, key)
            if values is not None:
                lines.append([place, split, *packed_line(run, values, pool, points)])
        if key == "gn_sharpness":
            edge = drawn_edge(run)
            if edge is not None:
                lines.append([place, "edge", *packed_line(run, edge, pool, points)])

    return {"key": key, "heading": quantity.heading, "log": quantity.log, "lines": lines}


def packed_line(run: Run, values: np.ndarray, pool: ArrayPool, points: int) -> tuple[int, int]:
    """Return the places of the steps and values of a line, thinned without losing a peak."""
    finite = np.isfinite(values)
    steps = run.columns["step"][finite]
    values = values[finite]
    kept = extremes(values, points)
    return pool.add(as_steps(steps[kept])), pool.add(values[kept].astype(np.float32))


def phase_lines(runs: list[Run], pool: ArrayPool, points: int) -> list[Line]:
    """Return the path of each run through sharpness and ECE, with its steps."""
    lines: list[Line] = []
    for place, run in enumerate(runs):
        for split in ("train", "val"):
            pair = paired(run, split)
            if pair is None:
                continue
            step, sharpness, ece = pair
            kept = np.union1d(extremes(sharpness, points // 2), extremes(ece, points // 2))
            columns = (sharpness[kept].astype(np.float32), (100 * ece[kept]).astype(np.float32))
            lines.append([place, split, *map(pool.add, columns), pool.add(as_steps(step[kept]))])
    return lines
