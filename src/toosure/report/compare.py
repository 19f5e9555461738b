"""Runs side by side: the comparison table, and how ECE and sharpness go together in each."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toosure.figures import Group, correlation
from toosure.report.follow import FollowedRun
from toosure.report.page import Cell, Shown, printed, section, table


class Column(NamedTuple):
    """A quantity of the last row: its heading, unit, print form, and which end is better."""

    heading: str
    key: str
    scale: float
    form: str
    high_is_good: bool = False


COLUMNS = (
    Column("accuracy, %", "accuracy", 100, ".1f", True),
    Column("NLL, nats", "nll", 1, ".3f"),
    Column("ECE, points", "ece", 100, ".2f"),
    Column("smECE, points", "smece", 100, ".2f"),
    Column("GN sharpness", "gn_sharpness", 1, ".3g"),
    Column("lowest 1 % margin", "margin_q01", 1, ".2f", True),
)


def comparison(groups: Sequence[Group]) -> str:
    """Return the table of groups: mean over seeds, standard deviation below, the best in bold."""
    found = [[values_of(group, column) for column in COLUMNS] for group in groups]
    means = np.array([[mean(v) for v in row] for row in found]).reshape(len(groups), len(COLUMNS))
    means[np.array([is_ill(group) for group in groups], dtype=bool)] = np.nan
    marks = best(means)
    rows: list[list[Cell]] = []
    for i, group in enumerate(groups):
        seeds = len(group.runs)
        name = (group.label, f"{seeds} seeds" if seeds > 1 else "")
        cells = [
            shown(found[i][j], column, len(groups) > 1 and marks[i, j])
            for j, column in enumerate(COLUMNS)
        ]
        rows.append([name, *cells])
    header = ("run", *(column.heading for column in COLUMNS))
    return section(
        "Side by side",
        note_on(groups),
        table(header, rows, sortable=True),
        name="comparison",
    )


def note_on(groups: Sequence[Group]) -> str:
    """Say what the numbers are of."""
    splits = {run.split for group in groups for run in group.runs}
    where = {"val": "Validation data", "train": "Training data"}
    said = where[splits.pop()] if len(splits) == 1 else "Validation data, else training data"
    seeds = ", mean over seeds ± standard deviation" if any(len(g.runs) > 1 for g in groups) else ""
    bold = "Bold: the highest accuracy and margin, the lowest of the rest; close ones may be chance"
    marked = f"{bold}. P" if len(groups) > 1 else "P"
    return f"{said}, last row of each run{seeds}. {marked}ress a heading to sort."


def values_of(group: Group, column: Column) -> list[float]:
    """Return the last finite value of a quantity in each run, in the unit of its column."""
    found = (last_of(run, f"{run.split}/{column.key}") for run in group.runs)
    return [column.scale * value for value in found if value is not None]


def last_of(run: FollowedRun, key: str) -> float | None:
    """Return the last value of a key."""
    values = run.columns.get(key)
    if values is None:
        return None
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


def is_ill(group: Group) -> bool:
    """Whether a run of a group ended before its time: its numbers are then no merit.

    An untrained network has next to no calibration error and a small sharpness.
    """
    early = ("diverged", "failed", "stopped", "interrupted")
    return any(run.status in early for run in group.runs)


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def best(means: np.ndarray) -> np.ndarray:
    """Mark the best of each column, ties together, none where all are alike; (groups, columns)."""
    signs = np.array([1 if column.high_is_good else -1 for column in COLUMNS])
    scores = np.where(np.isnan(means), -np.inf, means * signs)
    top, differ = scores.max(0, initial=-np.inf), (scores != scores[:1]).any(0)
    return np.isfinite(scores) & (scores == top) & differ


def shown(values: Sequence[float], column: Column, is_best: bool) -> Shown:
    """Return the cell of some seeds."""
    if not values:
        return Shown(None, "–")
    note = f"± {printed(float(np.std(values, ddof=1)), column.form)}" if len(values) > 1 else ""
    return Shown(mean(values), printed(mean(values), column.form), note, bool(is_best))


def correlations(groups: Sequence[Group]) -> str:
    """Return Pearson's and the rank correlation of ECE with sharpness, mean ± std over seeds."""
    rows: list[list[Cell]] = []
    for group in groups:
        cells = [
            spread([getattr(c, kind) for run in group.runs if (c := correlation(run, split))])
            for split in ("train", "val")
            for kind in ("pearson", "rank")
        ]
        rows.append([group.label, *cells])
    header = ("run", "train, Pearson", "train, rank", "val, Pearson", "val, rank")
    return f'<div id="correlations">{table(header, rows, sortable=True)}</div>'


def spread(values: Sequence[float]) -> Shown:
    if not values:
        return Shown(None, "–")
    note = f"± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return Shown(mean(values), printed(mean(values), "+.2f"), note)
