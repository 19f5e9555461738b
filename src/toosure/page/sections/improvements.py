"""What helped: methods and calibrators by how much they lowered the ECE."""

import math
from dataclasses import dataclass

from toosure.page.half_intervals import PlusMinus
from toosure.page.html import section
from toosure.page.kept_calibrators import kept_calibrators
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.paired import SettingComparison
from toosure.page.ranking import RankedSetting
from toosure.page.scaling_effect import scaling_effect
from toosure.page.sections.differences import difference_cell
from toosure.page.tables import Cell, Heading, HtmlCell, NumberCell, table
from toosure.quantities import described

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

    @property
    def costs_accuracy(self) -> bool:
        return self.accuracy.value < 0 and not self.accuracy.is_chance


def improvements(page: PageRuns) -> str:
    """Return what lowered the ECE of the reference, best first; empty without a comparison."""
    if page.comparison is None:
        return ""
    candidates = possible_improvements(page, page.comparison)
    if not candidates:
        return ""

    candidates.sort(key=lambda each: (each.costs_accuracy, each.ece.value))
    header: list[Heading] = ["method", described("ece"), described("accuracy"), "time"]
    rows = [row_of(improvement) for improvement in candidates[:MAX_LISTED]]
    note = (
        f"Change of the ECE against {page.reference.label}, best first; those that cost accuracy "
        "come last. Time is that of training, as a multiple of the reference's. Grey may be chance."
    )
    return section("What helped", note, table(header, rows, sortable=True), name="helped")


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
    differences = comparison.difference(setting.label, baseline.label)
    seconds = setting.values.get("seconds", math.nan) / baseline.values.get("seconds", math.nan)
    seeds = len(setting.group.runs)
    note = f"{seeds} seeds" if seeds > 1 else ""
    return Improvement(setting.label, note, differences["ece"], differences["accuracy"], seconds)


def calibrator_improvements(baseline: RankedSetting) -> list[Improvement]:
    """Return the calibrators of the reference's first run, which need no training."""
    run = baseline.group.runs[0]
    candidates = []
    effect = scaling_effect(run)
    if effect is not None:
        name = f"{baseline.label}, with temperature {run.scaling['temperature']:.2f}"
        candidates.append(Improvement(name, "on test data", effect.change, UNCHANGED, 1.0))

    for kept in kept_calibrators(run):
        if effect is None or kept.name != "temperature":
            name = f"{baseline.label}, with {kept.name}"
            candidates.append(
                Improvement(name, "on test data", kept.ece_change, kept.accuracy_change, 1.0)
            )
    return candidates


def row_of(improvement: Improvement) -> list[Cell]:
    """Return the row of an improvement."""
    ece = difference_cell(described("ece"), improvement.ece)
    accuracy: Cell = difference_cell(described("accuracy"), improvement.accuracy)
    if improvement.accuracy == UNCHANGED:
        accuracy = HtmlCell.of('<span class="chance">unchanged</span>', 0.0)
    time = NumberCell(improvement.time, f"{printed(improvement.time, '.2f')} ×")
    return [(improvement.name, improvement.note), ece, accuracy, time]
