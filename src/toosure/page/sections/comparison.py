"""Runs side by side: the last numbers of each setting, mean and spread over seeds."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from toosure.figures import Group
from toosure.page.criteria import criterion_note
from toosure.page.html import section
from toosure.page.page_runs import PageRuns
from toosure.page.ranking import ENDED_EARLY, last_value
from toosure.page.tables import Cell, mean_cell, table
from toosure.quantities import Quantity, described, own_keys, shown_in
from toosure.runs import Run


def comparison(page: PageRuns) -> str:
    """Return the table of groups: mean over seeds, standard deviation below, the best in bold."""
    groups = page.groups
    columns = columns_of(page.runs)
    values = [[last_values(group, column) for column in columns] for group in groups]
    means = np.array([[mean(cell) for cell in row] for row in values])
    means = means.reshape(len(groups), len(columns))

    # Runs that ended early, and numbers of training data, are never marked as best.
    no_merit = [ended_early(group) or training_only(group) for group in groups]
    means[np.array(no_merit, dtype=bool)] = np.nan
    is_best = np.concatenate([best(means[own], columns) for own in by_data_set(page)])

    rows: list[list[Cell]] = []
    for i, group in enumerate(groups):
        cells: list[Cell] = [(group.label, remark_on(group))]
        for j, column in enumerate(columns):
            cells.append(mean_cell(values[i][j], column.form, bool(is_best[i, j])))
        rows.append(cells)

    differing = criterion_note(page.runs, [column.key for column in columns])
    attributes = [f'data-label="{escape(group.label)}"' for group in groups]
    return section(
        "Side by side" if len(groups) > 1 else "Last row",
        " ".join(filter(None, [note_on(groups, len(page.by_data_set)), differing])),
        table(["run", *columns], rows, sortable=True, attributes=attributes),
        name="comparison",
    )


def by_data_set(page: PageRuns) -> list[slice]:
    """Return the places of the settings of each data set, which stand together on the page."""
    ends = np.cumsum([len(part.groups) for part in page.by_data_set.values()]).tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def columns_of(runs: Sequence[Run]) -> list[Quantity]:
    """Return the columns that some run has: known quantities, then the user's own numbers."""
    written = dict.fromkeys(key for run in runs for key in run.last)
    unknown = own_keys(list(written))
    own = dict.fromkeys(key.removeprefix("train/").removeprefix("val/") for key in unknown)
    columns = [*shown_in("table"), *(described(key) for key in own)]
    return [q for q in columns if any(last_value(run, q.key) is not None for run in runs)]


def remark_on(group: Group) -> str:
    """Return the note below a name: the number of seeds, and the data if not validation."""
    parts = [f"{len(group.runs)} seeds"] if len(group.runs) > 1 else []
    without = sum(run.training_only for run in group.runs)
    if without == len(group.runs):
        parts.append("training data")
    elif without:
        parts.append(f"{without} without validation data left out")
    return ", ".join(parts)


def note_on(groups: Sequence[Group], data_sets: int) -> str:
    """Return the note below the heading: of which data the numbers are, and what is in bold."""
    without = [training_only(group) for group in groups]
    data = "Validation data"
    if all(without):
        data = "Training data"
    elif any(without):
        data = "Validation data, and training data where it is said, which are never in bold"
    seeds = ", mean over seeds ± standard deviation" if any(len(g.runs) > 1 for g in groups) else ""
    if len(groups) == 1:
        return f"{data}{seeds}."

    sentences = [f"{data}, last row of each run{seeds}."]
    if without.count(False) > 1:
        within = " of each data set" if data_sets > 1 else ""
        sentences.append(
            f"Bold: the highest accuracy and margin{within}, the lowest of the rest; close ones "
            "may be chance."
        )
        if any(map(ended_early, groups)):
            sentences.append("Settings with a run that ended early are never in bold.")
    return " ".join([*sentences, "Press a heading to sort."])


def training_only(group: Group) -> bool:
    """Whether no run of a group was measured on validation data, but on training data."""
    return all(run.training_only for run in group.runs)


def last_values(group: Group, column: Quantity) -> list[float]:
    """Return the last finite value of a quantity in each run, in the unit of its column.

    If some seeds have validation data, the others are left out.
    """
    runs = [run for run in group.runs if not run.training_only] or group.runs
    values = [last_value(run, column.key) for run in runs]
    return [column.scale * value for value in values if value is not None]


def ended_early(group: Group) -> bool:
    """Whether a run of a group ended early, so that its numbers cannot be the best.

    An untrained network has next to no calibration error and a small sharpness.
    """
    return any(run.status in ENDED_EARLY for run in group.runs)


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def best(means: np.ndarray, columns: Sequence[Quantity]) -> np.ndarray:
    """Mark the best of each column, with ties, unless all are equal; (groups, columns)."""
    signs = np.array([{"higher": 1.0, "lower": -1.0}.get(c.better, np.nan) for c in columns])
    scores = np.where(np.isnan(means * signs), -np.inf, means * signs)
    top = scores.max(0, initial=-np.inf)
    differ = (scores != scores[:1]).any(0)
    marks: np.ndarray = np.isfinite(scores) & (scores == top) & differ
    return marks
