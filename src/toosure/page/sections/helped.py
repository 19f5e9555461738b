"""What helped: methods and calibrators by the ECE they took away at no less accuracy."""

import math
from dataclasses import dataclass

from toosure.page.half_intervals import PlusMinus
from toosure.page.html import section
from toosure.page.kept_calibrators import kept_calibrators
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.paired import Comparison
from toosure.page.ranking import Standing
from toosure.page.scaling_effect import scaling_effect
from toosure.page.sections.differences import difference_cell
from toosure.page.tables import Cell, Heading, HtmlCell, NumberCell, table
from toosure.quantities import described

MAX_LISTED = 40
UNCHANGED = PlusMinus(0.0, 0.0)


@dataclass(frozen=True)
class Remedy:
    """Something that may lower the ECE of the reference: its gain, its price."""

    name: str
    note: str
    ece: PlusMinus
    accuracy: PlusMinus
    time: float  # as a multiple of the reference's seconds

    @property
    def costs_accuracy(self) -> bool:
        return self.accuracy.value < 0 and not self.accuracy.is_chance


def helped(page: PageRuns) -> str:
    """Return what lowered the ECE of the reference, best first; nothing without a comparison."""
    if page.comparison is None:
        return ""
    remedies = remedies_of(page, page.comparison)
    if not remedies:
        return ""

    remedies.sort(key=lambda each: (each.costs_accuracy, each.ece.value))
    header: list[Heading] = ["method", described("ece"), described("accuracy"), "time"]
    rows = [row_of(remedy) for remedy in remedies[:MAX_LISTED]]
    note = (
        f"Change of the ECE against {page.reference.label}, best first; those that cost accuracy "
        "come last. Time is that of training, as a multiple of the reference's. Grey may be chance."
    )
    return section("What helped", note, table(header, rows, sortable=True), name="helped")


def remedies_of(page: PageRuns, comparison: Comparison) -> list[Remedy]:
    """Return the other settings, and the calibrators of the reference."""
    reference = page.reference.label
    plain = next(standing for standing in page.standings if standing.label == reference)
    remedies = [
        setting_remedy(standing, plain, comparison)
        for standing in page.standings
        if standing.label in comparison.settings and standing.label != reference
    ]
    return remedies + calibrator_remedies(plain)


def setting_remedy(standing: Standing, plain: Standing, comparison: Comparison) -> Remedy:
    differences = comparison.difference(standing.label, plain.label)
    seconds = standing.values.get("seconds", math.nan) / plain.values.get("seconds", math.nan)
    seeds = len(standing.group.runs)
    note = f"{seeds} seeds" if seeds > 1 else ""
    return Remedy(standing.label, note, differences["ece"], differences["accuracy"], seconds)


def calibrator_remedies(plain: Standing) -> list[Remedy]:
    """Return the calibrators of the reference's first run: they take no training."""
    run = plain.group.runs[0]
    remedies = []
    effect = scaling_effect(run)
    if effect is not None:
        name = f"{plain.label}, with temperature {run.scaling['temperature']:.2f}"
        remedies.append(Remedy(name, "on test data", effect.change, UNCHANGED, 1.0))

    for kept in kept_calibrators(run):
        if effect is None or kept.name != "temperature":
            name = f"{plain.label}, with {kept.name}"
            remedies.append(
                Remedy(name, "on test data", kept.ece_change, kept.accuracy_change, 1.0)
            )
    return remedies


def row_of(remedy: Remedy) -> list[Cell]:
    """Return the row of a remedy."""
    ece = difference_cell(described("ece"), remedy.ece)
    accuracy: Cell = difference_cell(described("accuracy"), remedy.accuracy)
    if remedy.accuracy == UNCHANGED:
        accuracy = HtmlCell.of('<span class="chance">unchanged</span>', 0.0)
    time = NumberCell(remedy.time, f"{printed(remedy.time, '.2f')} ×")
    return [(remedy.name, remedy.note), ece, accuracy, time]
