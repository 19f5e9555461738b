"""Calibrators, before and after: the temperature of each run, and what `toosure calibrate` kept."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from toosure.figures import Group
from toosure.page.half_intervals import PlusMinus, ValueInterval
from toosure.page.html import section, with_label
from toosure.page.kept_calibrators import KeptCalibrator, kept_calibrators
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.scaling_effect import scaling_effect
from toosure.page.tables import Cell, Heading, NumberCell, mean_cell, table
from toosure.runs import Run
from toosure.verdicts import plural

NOTE = (
    "Each was fitted on a run's validation data and judged on test data that it never saw. A "
    "temperature T above 1 cools an over-confident network; accuracy stays as it was. Below the "
    "ECE of a run is its 95 % interval; chance is what a perfectly calibrated network may show on "
    "so many examples. For another calibrator: `toosure calibrate RUN --method isotonic`, with the "
    "folder of a run."
)
MEANS = "Means over seeds ± standard deviation; every run is folded below."
NUMBERS = ("temperature", "ece", "ece_after", "nll", "nll_after", "n")


def calibrators(page: PageRuns) -> str:
    """Return a table of the effect of calibrators on each run."""
    rows = [row for name, run in page.named for row in rows_of(name, run)]
    if not rows:
        return ""

    every = rows_table(rows)
    note = NOTE
    blocks = [every]
    means = [row for group in page.groups for row in means_of(group)]
    if len(means) < len(rows):
        note = f"{MEANS} {NOTE}"
        blocks = [rows_table(means), f"<details><summary>every run</summary>{every}</details>"]
    return section(
        "Calibrators, before and after", note, *blocks, name="calibrators", short="Calibrators"
    )


def rows_table(rows: Sequence[Sequence[Cell]]) -> str:
    header: list[Heading] = ["run", "calibrator", with_label("ece", "ECE before"), "ECE after"]
    header += [
        "by chance",
        "accuracy, points",
        with_label("nll", "NLL before"),
        "NLL after",
        "samples",
    ]
    formats = ("", "", "", "", "", "", ".3f", ".3f", ",")
    return table(header, rows, formats, sortable=True)


def means_of(group: Group) -> list[list[Cell]]:
    """Return the rows of a setting: of several seeds, a mean over them for each calibrator."""
    if len(group.runs) == 1:
        return rows_of(group.names[0], group.runs[0])

    by_calibrator: dict[str, list[list[Cell]]] = {}
    for run in group.runs:
        for row in rows_of(group.label, run):
            by_calibrator.setdefault(calibrator_of(row), []).append(row)
    own = [float(run.scaling["temperature"]) for run in group.runs if is_whole(run.scaling)]
    notes = {"temperature": f"T = {printed(fmean(own), '.2f')} on average"} if own else {}
    return [
        mean_row(group.label, (name, notes.get(name, "")), rows)
        for name, rows in by_calibrator.items()
    ]


def calibrator_of(row: Sequence[Cell]) -> str:
    """Return the name of the calibrator of a row, without its temperature."""
    return str(row[1][0] if isinstance(row[1], tuple) else row[1]).partition(",")[0]


def mean_row(label: str, calibrator: Cell, rows: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Return the means over seeds of the rows of one calibrator, ± standard deviation."""
    seeds = f"{len(rows)} {plural(len(rows), 'seed')}"
    before, after, chance, accuracy, nll, nll_after, n = (
        [number_in(row[place]) for row in rows] for place in range(2, 9)
    )
    known = [each for each in chance if math.isfinite(each)]
    highest = NumberCell(max(known), f"up to {max(known):.1f}") if known else chance_cell(None)
    changed = mean_cell(accuracy, "+.2f") if any(accuracy) else NumberCell(0.0, "unchanged")
    return [
        (label, seeds),
        calibrator,
        mean_cell(before, ".2f"),
        mean_cell(after, ".2f"),
        highest,
        changed,
        mean_cell(nll, ".3f"),
        mean_cell(nll_after, ".3f"),
        int(min(n)),
    ]


def number_in(cell: Cell) -> float:
    """Return the number of a cell; NaN if it has none."""
    value = cell.value if isinstance(cell, NumberCell) else cell
    return float(value) if isinstance(value, int | float) else math.nan


def is_whole(scaling: Mapping[str, Any]) -> bool:
    """Whether every number is there."""
    return all(isinstance(scaling.get(name), int | float) for name in NUMBERS)


def rows_of(name: str, run: Run) -> list[list[Cell]]:
    """Return the rows of a run: its own temperature, then the other calibrators."""
    own = is_whole(run.scaling)
    kept = [each for each in kept_calibrators(run) if not (own and each.name == "temperature")]
    rows = [row_of_calibrator(name, each) for each in kept]
    return [row_of_temperature(name, run), *rows] if own else rows


def row_of_temperature(name: str, run: Run) -> list[Cell]:
    """Return what a run wrote at its end, with intervals if its predictions are kept."""
    scaling = run.scaling
    effect = scaling_effect(run)
    temperature = printed(scaling["temperature"], ".3f")
    symbol = "T = ".replace(" ", "\N{NO-BREAK SPACE}")  # on one line with its value
    return [
        name,
        (f"temperature, {symbol}{temperature}", str(scaling.get("note", ""))),
        points(scaling["ece"], effect.before if effect else None),
        points(scaling["ece_after"], effect.after if effect else None),
        chance_cell(None if effect is None else effect.chance),
        NumberCell(0.0, "unchanged"),
        scaling["nll"],
        scaling["nll_after"],
        scaling["n"],
    ]


def row_of_calibrator(name: str, kept: KeptCalibrator) -> list[Cell]:
    """Return the results of `toosure calibrate` for one calibrator."""
    change = kept.accuracy_change
    accuracy = NumberCell(0.0, "unchanged")
    if change.value:
        accuracy = NumberCell(
            100 * change.value,
            printed(100 * change.value, "+.2f"),
            "may be chance" if change.is_chance else "",
        )

    return [
        name,
        (kept.name, kept.note),
        points_between(kept.ece),
        points_between(kept.ece_after),
        chance_cell(kept.chance),
        accuracy,
        kept.nll,
        kept.nll_after,
        kept.n,
    ]


def points(value: float, estimate: PlusMinus | None) -> NumberCell:
    note = "" if estimate is None else f"± {100 * estimate.half_width:.2f}"
    return NumberCell(100 * value, printed(100 * value, ".2f"), note)


def points_between(estimate: ValueInterval) -> NumberCell:
    value, low, high = (100 * each for each in estimate)
    note = f"{low:.2f} to {high:.2f}" if math.isfinite(low + high) else ""
    return NumberCell(value, printed(value, ".2f"), note)


def chance_cell(chance: float | None) -> NumberCell:
    if chance is None:
        return NumberCell(None, "–")
    return NumberCell(100 * chance, f"up to {100 * chance:.1f}")
