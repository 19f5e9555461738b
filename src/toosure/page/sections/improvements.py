"""What helped: methods and calibrators by how much they lowered the ECE."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from toosure.page.half_intervals import PlusMinus, mean_over_seeds
from toosure.page.html import change_of, data_heading, prose, section
from toosure.page.kept_calibrators import kept_calibrators
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.paired import SettingComparison
from toosure.page.ranking import ENDED_EARLY, RankedSetting
from toosure.page.replicas import KEYS
from toosure.page.scaling_effect import scaling_effect
from toosure.page.sections.differences import MOSTLY_OVER, SPLITS, difference_cell, mostly_over
from toosure.page.tables import Cell, Heading, HtmlCell, NumberCell, table
from toosure.quantities import described
from toosure.runs import Run

MAX_LISTED = 40
UNCHANGED = PlusMinus(0.0, 0.0)


@dataclass(frozen=True)
class Improvement:
    """A method or calibrator against the reference: change of ECE and accuracy, and time."""

    name: str
    note: str
    ece: PlusMinus
    accuracy: PlusMinus
    time: float  # as a multiple of the reference's seconds
    over: str  # what the larger part of the interval of the ECE is over

    @property
    def costs_accuracy(self) -> bool:
        return self.accuracy.value < 0 and not self.accuracy.is_chance


class Change(NamedTuple):
    """What one calibrator changed on the test data of one run."""

    calibrator: str
    ece: PlusMinus
    accuracy: PlusMinus
    n: int  # examples
    temperature: float | None = None


def improvements(page: PageRuns) -> str:
    """Return what lowered the ECE within each data set; empty if none has a comparison."""
    blocks = [
        block(head, part, part.comparison) for head, part in page.headed_parts if part.comparison
    ]
    if not any(blocks):
        return ""

    note = (
        "Change against the reference, the best for the ECE first; those that cost accuracy come "
        "last. Time is that of training, as a multiple of the reference's. Grey may be chance."
    )
    return section("What helped", note, *blocks, name="helped")


def block(head: str, page: PageRuns, comparison: SettingComparison) -> str:
    """Return what lowered the ECE of the reference of one data set, with its own numbers."""
    candidates = possible_improvements(page, comparison)
    if not candidates:
        return ""

    candidates.sort(key=lambda each: (each.costs_accuracy, each.ece.value))
    header: list[Heading] = [
        "method",
        change_of("ece", "change of ECE"),
        change_of("accuracy", "change of accuracy"),
        MOSTLY_OVER,
        "time",
    ]
    rows = [row_of(improvement) for improvement in candidates[:MAX_LISTED]]
    reference = page.reference.label
    values = dict(zip(KEYS, comparison.settings[reference].values, strict=True))
    ece, accuracy = (
        f"{printed(described(key).scale * values[key], described(key).form)} {described(key).unit}"
        for key in ("ece", "accuracy")
    )
    against = (
        f"Against {reference}, {page.why_reference}: its ECE is {ece}, its accuracy {accuracy}, "
        f"on {comparison.n:,} {SPLITS[comparison.split]} examples."
    )
    return f"{data_heading(head)}<p>{prose(against)}</p>{table(header, rows, sortable=True)}"


def possible_improvements(page: PageRuns, comparison: SettingComparison) -> list[Improvement]:
    """Return the other settings, and the calibrators of the reference."""
    reference = page.reference.label
    baseline = next(setting for setting in page.ranked_settings if setting.label == reference)
    candidates = [
        setting_improvement(setting, baseline, comparison)
        for setting in page.ranked_settings
        if setting.label in comparison.settings and setting.label != reference
    ]
    return candidates + calibrator_improvements(baseline)


def setting_improvement(
    setting: RankedSetting, baseline: RankedSetting, comparison: SettingComparison
) -> Improvement:
    """Return the change from the reference to another setting, with its interval and time."""
    differences = comparison.difference(setting.label, baseline.label)
    seconds = setting.values.get("seconds", math.nan) / baseline.values.get("seconds", math.nan)
    seeds = len(setting.group.runs)
    note = f"{seeds} seeds" if seeds > 1 else ""
    ece, accuracy = differences["ece"], differences["accuracy"]
    over = mostly_over(ece, comparison.seeds(setting.label, baseline.label), comparison.n)
    return Improvement(setting.label, note, ece, accuracy, seconds, over)


def calibrator_improvements(baseline: RankedSetting) -> list[Improvement]:
    """Return the calibrators of the reference, which need no training: means over its seeds."""
    by_name: dict[str, list[Change]] = {}
    for run in baseline.group.runs:
        if run.status not in ENDED_EARLY:
            for change in changes_of(run):
                by_name.setdefault(change.calibrator, []).append(change)
    return [improvement_of(baseline, changes) for changes in by_name.values()]


def changes_of(run: Run) -> list[Change]:
    """Return what calibrators changed on the test data of one run."""
    changes = []
    effect = scaling_effect(run)
    if effect is not None:
        temperature = float(run.scaling["temperature"])
        changes.append(Change("temperature", effect.change, UNCHANGED, effect.n, temperature))

    for kept in kept_calibrators(run):
        if effect is None or kept.name != "temperature":
            changes.append(Change(kept.name, kept.ece_change, kept.accuracy_change, kept.n))
    return changes


def improvement_of(baseline: RankedSetting, changes: Sequence[Change]) -> Improvement:
    """Return the mean change by one calibrator over the seeds that it was fitted for."""
    name = f"{baseline.label}, with {changes[0].calibrator}"
    known = [each.temperature for each in changes if each.temperature is not None]
    if known:
        name += f" {fmean(known):.2f}"

    note = "on test data"
    seeds = len(baseline.group.runs)
    if len(changes) == seeds > 1:
        note += f", {seeds} seeds"
    elif len(changes) < seeds:
        note += f", {len(changes)} of {seeds} seeds"
    ece = mean_over_seeds([each.ece for each in changes])
    accuracy = mean_over_seeds([each.accuracy for each in changes])
    n = min(each.n for each in changes)
    return Improvement(name, note, ece, accuracy, 1.0, mostly_over(ece, len(changes), n))


def row_of(improvement: Improvement) -> list[Cell]:
    """Return the row of an improvement."""
    ece = difference_cell(described("ece"), improvement.ece)
    accuracy: Cell = difference_cell(described("accuracy"), improvement.accuracy)
    if improvement.accuracy == UNCHANGED:
        accuracy = HtmlCell.of('<span class="chance">unchanged</span>', 0.0)
    time = NumberCell(improvement.time, f"{printed(improvement.time, '.2f')} ×")
    return [(improvement.name, improvement.note), ece, accuracy, improvement.over, time]
