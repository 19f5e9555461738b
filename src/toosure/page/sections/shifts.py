"""Runs under shifts: corrupted test images by severity and by kind, and data that are unknown."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from toosure.figures.shifts import ShiftLine, shifts_figure
from toosure.page.html import FIGURE_TOOLS, plot, section, term, with_label
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.tables import Cell, Heading, NumberCell, mean_cell, table
from toosure.quantities import QUANTITIES, Quantity
from toosure.runs import Run
from toosure.shifts.record import METRICS, OOD_SCORES, ShiftRecord
from toosure.verdicts import plural

MAX_LINES = 8  # settings in a figure
MAX_COLUMNS = 6  # settings in the table of corruptions
DRAWN = ("accuracy", "ece", "smece", "nll")
OOD_KEYS = ("ood_auroc", "ood_fpr95")
KEYS = (*(f"shift_{metric}" for metric in METRICS), "mean_corruption_error", *OOD_KEYS)
NOTE = (
    "The test set as it is, and under corruptions made after Hendrycks and Dietterich (2019); each "
    "pair of corruption and severity is judged alone, and means are over all of them"
)
SCORE_NOTE = (
    "Unknown data have no right class: a score should be lower on them. Scores are the largest "
    "probability, the negative entropy, the energy (log of the summed exponentials) and the margin "
    "between the two largest logits. 'corrupted' are the test images themselves under all "
    "corruptions."
)


def shifts(page: PageRuns) -> str:
    """Return figures and tables of the runs that were judged on shifts; empty without one."""
    settings = settings_of(page)
    if not settings:
        return ""

    panels = "".join(panel(settings[:MAX_LINES], metric) for metric in DRAWN)
    blocks = [
        f'<div class="panels">{panels}</div>',
        settings_table(settings, references_of(page, settings)),
        corruptions_table(settings),
    ]
    unknown = unknown_table(settings)
    if unknown:
        auroc, fpr95 = (term(QUANTITIES[key], QUANTITIES[key].short) for key in OOD_KEYS)
        told_apart = f"{auroc} and {fpr95} say how well they are told apart."
        blocks += [f"<p>{SCORE_NOTE} {told_apart}</p>", unknown]
    return section("Under shift", note_on(page, settings), *blocks, name="shifts")


def panel(settings: Sequence[ShiftLine], metric: str) -> str:
    """Return one score against severity, under its name."""
    quantity = QUANTITIES[metric]
    drawing = plot(shifts_figure(settings, metric), f"{quantity.title} against severity")
    return f"<figure><h3>{term(quantity, quantity.title)}</h3>{drawing}{FIGURE_TOOLS}</figure>"


def settings_of(page: PageRuns) -> list[ShiftLine]:
    """Return the settings that were judged, in the order of the page, with their seeds."""
    settings = []
    for group in page.groups:
        records = [record for run in group.runs if (record := record_of(run)) is not None]
        if records:
            settings.append(
                ShiftLine(group.label, page.places[group.label], on_most_images(records))
            )
    return settings


def on_most_images(records: Sequence[ShiftRecord]) -> list[ShiftRecord]:
    """Keep the records on the most test images: a mean must be over the same ones."""
    most = max(images_of(record) for record in records)
    return [record for record in records if images_of(record) == most]


def images_of(record: ShiftRecord) -> tuple[int, int, int]:
    """Return how many test images were judged, of how many, and the seed that drew them."""
    return record.images, record.available, record.seed


def record_of(run: Run) -> ShiftRecord | None:
    return ShiftRecord.read(run.shifts)


def has_shifts(page: PageRuns) -> bool:
    """Whether any run was judged on shifts."""
    return any(record_of(run) is not None for run in page.runs)


def references_of(page: PageRuns, settings: Sequence[ShiftLine]) -> dict[str, ShiftLine]:
    """Return by label the setting that errors are divided by: the baseline on the same data.

    A setting that is alone on its data set has none.
    """
    named = {setting.label: setting for setting in settings}
    references: dict[str, ShiftLine] = {}
    for part in page.by_data_set.values():
        own = [named[group.label] for group in part.groups if group.label in named]
        if len(own) > 1:
            reference = named.get(part.reference.label, own[0])
            references |= {setting.label: reference for setting in own}
    return references


def note_on(page: PageRuns, settings: Sequence[ShiftLine]) -> str:
    """Return what was judged, on how many images, and which runs were not."""
    records = [record for setting in settings for record in setting.records]
    counts = sorted({(record.images, record.available) for record in records})
    images = ", ".join(f"{images:,} of {available:,}" for images, available in counts)
    note = f"{NOTE}. Test images: {images}."

    if len(counts) > 1:
        note += " Where the runs were judged on other images than the reference there is no mCE."
    left_out = sum(record_of(run) is not None for run in page.runs) - len(records)
    if left_out:
        note += (
            f" Left out: {left_out} {plural(left_out, 'run')} judged on other images than the "
            "other seeds of the setting; `toosure evaluate RUNS --shifts` judges all alike."
        )
    if len(settings) == 1:
        note += " In the figure a thin line is a corruption, the thick one their mean."
    if len(settings) > MAX_LINES:
        note += f" Drawn are the first {MAX_LINES} of {len(settings)} settings."
    if len({frozenset(record.cells) for record in records}) > 1:
        note += " The runs were not all judged under the same corruptions: their means differ."
    damaged = [run.name for run in page.runs if run.shifts and record_of(run) is None]
    if damaged:
        note += f" Not shown, since shifts.json is damaged: {', '.join(damaged)}."
    return note


# -- tables ---------------------------------------------------------------------------------------


def settings_table(settings: Sequence[ShiftLine], references: Mapping[str, ShiftLine]) -> str:
    """Return one row per setting: clean, and means over corruptions."""
    header: list[Heading] = [
        "run",
        with_label("accuracy", "clean accuracy"),
        with_label("ece", "clean ECE"),
    ]
    header += [QUANTITIES[f"shift_{metric}"] for metric in METRICS]
    header.append(QUANTITIES["mean_corruption_error"] if references else "mean error, %")

    rows: list[list[Cell]] = []
    for setting in settings:
        row: list[Cell] = [(setting.label, seeds_of(setting))]
        row.append(spread(setting, lambda r: r.clean["accuracy"], 100, ".2f"))
        row.append(spread(setting, lambda r: r.clean["ece"], 100, ".2f"))
        for metric in METRICS:
            row.append(of_quantity(setting, metric, QUANTITIES[f"shift_{metric}"]))
        row.append(error_cell(setting, references))
        rows.append(row)

    caption = "The mean error is not divided by that of another run."
    if references:
        labels = dict.fromkeys(escape(reference.label) for reference in references.values())
        each = ", each on its own data set" if len(labels) > 1 else ""
        caption = f"mCE is against {' and '.join(labels)}{each}."
    return table(header, rows, sortable=True) + f"<p>{caption}</p>"


def of_quantity(setting: ShiftLine, metric: str, quantity: Quantity) -> NumberCell:
    return spread(setting, lambda record: record.mean(metric), quantity.scale, quantity.form)


def error_cell(setting: ShiftLine, references: Mapping[str, ShiftLine]) -> NumberCell:
    """Return the mean corruption error against the reference's seeds, or the plain mean error."""
    if not references:
        return spread(setting, lambda record: record.mean_error, 100, ".2f")

    reference = references.get(setting.label)
    baseline = [] if reference is None else reference.records

    def relative(record: ShiftRecord) -> float:
        others = [each for each in baseline if each.same_images(record)]
        return record.mean_corruption_error(*others) if others else math.nan

    return spread(setting, relative, 100, ".1f")


def corruptions_table(settings: Sequence[ShiftLine]) -> str:
    """Return one row per corruption: the ECE of each setting, its accuracy below."""
    shown = settings[:MAX_COLUMNS]
    corruptions = dict.fromkeys(c for s in shown for r in s.records for c in r.corruptions)
    rows: list[list[Cell]] = []
    for corruption in corruptions:
        row: list[Cell] = [corruption.replace("_", " ")]
        for setting in shown:
            error = mean_under(setting, "ece", corruption)
            accuracy = mean_under(setting, "accuracy", corruption)
            row.append(
                NumberCell(error, printed(error, ".2f"), f"{printed(accuracy, '.1f')} % right")
            )
        rows.append(row)

    header = ["ECE in points, mean over severities", *(setting.label for setting in shown)]
    left_out = len(settings) - len(shown)
    caption = (
        f"<p>The first {len(shown)} settings; {left_out} more are above.</p>" if left_out else ""
    )
    return table(header, rows, sortable=True) + caption


def mean_under(setting: ShiftLine, metric: str, corruption: str) -> float:
    """Return the mean of a share under one corruption over severities and seeds, in per cent."""
    values = [record.mean(metric, corruption=corruption) for record in setting.records]
    return 100 * float(np.mean(values))


def unknown_table(settings: Sequence[ShiftLine]) -> str:
    """Return one row per setting and set of unknown images: AUROC and FPR95 of each score."""
    auroc, fpr95 = (QUANTITIES[key] for key in OOD_KEYS)
    header: list[Heading] = ["run", "unknown data", "images"]
    header += [f"{q.short} {score}, %" for q in (auroc, fpr95) for score in OOD_SCORES]

    rows: list[list[Cell]] = []
    for setting in settings:
        for name in dict.fromkeys(name for record in setting.records for name in record.ood):
            own = [record.ood[name] for record in setting.records if name in record.ood]
            row: list[Cell] = [setting.label, (name, own[0].note), own[0].images]
            row += [cell([each.auroc.get(s, math.nan) for each in own], auroc) for s in OOD_SCORES]
            row += [cell([each.fpr95.get(s, math.nan) for each in own], fpr95) for s in OOD_SCORES]
            rows.append(row)
    formats = ("", "", ",", *[""] * (2 * len(OOD_SCORES)))
    return table(header, rows, formats, sortable=True) if rows else ""


# -- cells ----------------------------------------------------------------------------------------


def seeds_of(setting: ShiftLine) -> str:
    return f"{len(setting.records)} seeds" if len(setting.records) > 1 else ""


def spread(
    setting: ShiftLine, value: Callable[[ShiftRecord], float], scale: float, form: str
) -> NumberCell:
    """Return the mean over seeds with the standard deviation below."""
    return mean_cell([scale * value(record) for record in setting.records], form)


def cell(values: Sequence[float], quantity: Quantity) -> NumberCell:
    return mean_cell([quantity.scale * value for value in values], quantity.form)
