"""Calibrators, before and after: the temperature of each run, and what `toosure calibrate` kept."""

import math
from collections.abc import Mapping
from typing import Any

from toosure.page.half_intervals import PlusMinus, ValueInterval
from toosure.page.html import section, with_label
from toosure.page.kept_calibrators import KeptCalibrator, kept_calibrators
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.scaling_effect import scaling_effect
from toosure.page.tables import Cell, Heading, NumberCell, table
from toosure.runs import Run

NOTE = (
    "Each was fitted on a run's validation data and judged on test data that it never saw. A "
    "temperature T above 1 cools an over-confident network; accuracy stays as it was. Below each "
    "ECE is its 95 % interval; chance is what a perfectly calibrated network may show on so many "
    "examples. For another calibrator: `toosure calibrate RUN --method isotonic`, with the folder "
    "of a run."
)
NUMBERS = ("temperature", "ece", "ece_after", "nll", "nll_after", "n")


def calibrators(page: PageRuns) -> str:
    """Return a table of the effect of calibrators on each run."""
    rows = [row for name, run in page.named for row in rows_of(name, run)]
    if not rows:
        return ""

    header: list[Heading] = ["run", "calibrator", with_label("ece", "ECE before"), "ECE after"]
    header += [
        "by chance",
        "accuracy, points",
        with_label("nll", "NLL before"),
        "NLL after",
        "samples",
    ]
    formats = ("", "", "", "", "", "", ".3f", ".3f", ",")
    return section(
        "Calibrators, before and after",
        NOTE,
        table(header, rows, formats, sortable=True),
        name="calibrators",
        short="Calibrators",
    )


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
