"""Scores under shifts on a terminal: one run or mixture, or several side by side."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toosure.cli.tables import console, numbers_table

if TYPE_CHECKING:
    from toosure.shifts.record import ShiftRecord

HEADINGS = {"accuracy": "accuracy, %", "nll": "NLL", "ece": "ECE, points", "smece": "smECE, points"}


def error_of(record: "ShiftRecord", reference: "ShiftRecord | None") -> float:
    """Return the mean corruption error against a reference, or the plain mean error."""
    if reference is None:
        return record.mean_error
    if not record.same_images(reference):
        raise ValueError(
            f"a run was judged on {record.images:,} of {record.available:,} test images, and "
            f"--baseline on {reference.images:,} of {reference.available:,}: they must be the same"
        )
    return record.mean_corruption_error(reference)


def error_sentence(error: float, baseline: Path | None) -> str:
    """Say what an error is measured against."""
    if baseline is None:
        return f"mean error under corruption {100 * error:.2f} % (unnormalised: no --baseline)"
    if math.isnan(error):
        return f"no mean corruption error: {baseline.resolve().name} is always right under one"
    return f"mean corruption error {100 * error:.2f} % of that of {baseline.resolve().name}"


# -- tables ---------------------------------------------------------------------------------------


def print_record(record: "ShiftRecord") -> None:
    """Print one run: by severity, by corruption, and against unknown data."""
    by_severity = numbers_table("severity", *HEADINGS.values())
    by_severity.add_row("clean", *cells(record.clean))
    for severity in record.severities:
        means = {metric: record.mean(metric, severity) for metric in HEADINGS}
        by_severity.add_row(str(severity), *cells(means))
    by_severity.add_row("mean of all", *cells(record.means()))
    console().print(by_severity, "")

    by_corruption = numbers_table("mean over severities", *HEADINGS.values())
    for name in record.corruptions:
        means = {metric: record.mean(metric, corruption=name) for metric in HEADINGS}
        by_corruption.add_row(name, *cells(means))
    console().print(by_corruption, "")

    unknown = numbers_table("unknown data", "images", "score", "AUROC, %", "FPR95, %")
    for name, ood in record.ood.items():
        for score in ood.auroc:
            figures = (f"{100 * ood.auroc[score]:.2f}", f"{100 * ood.fpr95[score]:.2f}")
            unknown.add_row(name, f"{ood.images:,}", score, *figures)
    console().print(unknown, "")

    typer.echo(f"{record.images:,} of {record.available:,} test images, {record.seconds:.1f} s")
    for name, ood in record.ood.items():
        if ood.note:
            typer.echo(f"{name}: {ood.note}")


def print_side_by_side(records: "Mapping[str, ShiftRecord]") -> None:
    """Print one row per run: clean, mean over corruptions, AUROC of the largest probability."""
    sets = list(dict.fromkeys(name for record in records.values() for name in record.ood))
    headings = (
        "images",
        "clean accuracy, %",
        "clean ECE",
        *(f"corrupted {name}" for name in HEADINGS.values()),
        *(f"AUROC {name}, %" for name in sets),
    )

    table = numbers_table("run", *headings)
    for name, record in records.items():
        clean = cells(record.clean)
        unknown = [record.ood.get(each) for each in sets]
        against = [
            "–" if ood is None else f"{100 * ood.auroc['confidence']:.2f}" for ood in unknown
        ]
        row = (f"{record.images:,}", clean[0], clean[2], *cells(record.means()), *against)
        table.add_row(name, *row)
    table.columns[0].overflow = "fold"
    console().print(table, "")


def cells(scores: Mapping[str, float]) -> list[str]:
    """Print the scores of one set: shares in per cent and points, the NLL in nats."""
    return [
        f"{scores[name]:.4f}" if name == "nll" else f"{100 * scores[name]:.2f}" for name in HEADINGS
    ]
