"""`toosure evaluate --multilabel`: independent labels, one by one and pooled."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toosure.cli.evaluation_tables import in_points
from toosure.cli.file_options import FileOptions, listed_words, write_text
from toosure.cli.tables import numbers_table, print_table

if TYPE_CHECKING:
    from toosure.evaluate import MultilabelEvaluation


def evaluate_labels(
    file: Path, reading: FileOptions, split: str | None, settings: dict[str, Any]
) -> "MultilabelEvaluation":
    """Read outputs (N, K) and labels (N, K) of a .npz or .pt, and evaluate every label."""
    from toosure.evaluate import evaluate
    from toosure.predictions.file_formats import TABLES, read_arrays
    from toosure.predictions.multilabel_arrays import multilabel_arrays
    from toosure.predictions.options import ReadOptions

    try:
        options = ReadOptions(
            reading.kind.value if reading.kind else None,
            split,
            reading.label,
            listed_words(reading.columns),
            listed_words(reading.classes),
        )
        if file.suffix.lower() in TABLES:
            raise ValueError("--multilabel takes arrays (N, K): save a .npz with probs and labels")
        kind, scores, labels, names = multilabel_arrays(read_arrays(file), options)
        logits = None if kind == "probs" else scores
        probs = scores if kind == "probs" else None
        if reading.ignore_index is not None:
            settings = settings | {"ignore_index": reading.ignore_index}
        return evaluate(logits, labels, probs=probs, multilabel=True, names=names, **settings)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def show_labels(result: "MultilabelEvaluation", html: Path | None, as_json: bool) -> None:
    """Write the page of independent labels, if asked for, and print the results."""
    if html:
        from toosure.page.multilabel import multilabel_page

        write_text(html, multilabel_page(result))
        typer.echo(f"page: {html}", err=True)
    print_labels(result, as_json)


def print_labels(result: "MultilabelEvaluation", as_json: bool) -> None:
    """Print the verdict, then one row per label and one for all pooled."""
    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
        return

    _, sentence, reasons = result.verdict
    typer.echo("\n".join([f"{sentence}.", *reasons, ""]))
    table = numbers_table("label", "frequency", "mean p", "gap, points", "ECE, points", "fault")
    for row in result.labels:
        shares = (f"{100 * row.frequency:.1f} %", f"{100 * row.probability:.1f} %")
        errors = (in_points(row.gap, "+.1f"), in_points(row.ece, ".1f"))
        table.add_row(row.name, *shares, *errors, row.fault)
    pooled = (in_points(result.pooled["gap"], "+.1f"), in_points(result.pooled["ece"], ".1f"))
    table.add_row("all pooled", "", "", *pooled, "")
    print_table(table)
    typer.echo(f"\nn = {result.n:,}, {result.bins} bins, {100 * result.level:g} % intervals")
