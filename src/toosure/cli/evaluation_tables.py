"""Print what `toosure evaluate` found: one file, several files, subgroups."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from toosure.cli.tables import console, numbers_table, print_table

if TYPE_CHECKING:
    from toosure.evaluate import Evaluation
    from toosure.evaluate.estimates import Estimate
    from toosure.evaluate.paired import Comparison
    from toosure.evaluate.recalibrated import Recalibration
    from toosure.evaluate.subgroups import Subgroups


NARROW = 100  # characters of a line, below which seven columns are not read


def print_evaluation(result: "Evaluation", keys: Sequence[str] | None = None) -> None:
    """Print the verdict and metrics as `toosure evaluate` does, and which options show others."""
    print_metrics(result, keys)
    print_judged(result)
    if result.infinite:
        typer.echo(result.infinite)
    if keys is not None:
        typer.echo("--all prints the other metrics.")
        return
    for line in result.omissions():
        typer.echo(line)


def print_judged(result: "Evaluation | Comparison | Recalibration") -> None:
    """Say whether P(class 1) or the predicted class is judged, and how to judge the other."""
    if result.judged:
        other = "--top-label judges the predicted class"
        if not result.class_one:
            other = "--class-1 judges P(class 1)"
        typer.echo(f"{result.judged}; {other}.")


def print_metrics(result: "Evaluation", keys: Sequence[str] | None = None) -> None:
    """Print the verdict, then metrics with their intervals: those in `keys`, or all by group."""
    from toosure.evaluate.verdict import verdict
    from toosure.page.number_text import printed
    from toosure.quantities import evaluation_groups

    _, sentence, reasons = verdict(result)
    typer.echo("\n".join([f"{sentence}.", *reasons, ""]))

    table = numbers_table("metric", "value", "low", "high")
    groups = evaluation_groups().values() if keys is None else (keys,)
    for names in groups:
        for name in (name for name in names if name in result.metrics):
            table.add_row(name, *(printed(each, ".4f") for each in result.metrics[name]))
        table.add_section()
    print_table(table)

    edges = "(a, b]" if result.edge == "right" else "[a, b)"
    over = ""
    if result.groups is not None:
        over = f" over {result.groups:,} {result.group_name}s, resampled whole"
    typer.echo(
        f"\nn = {result.n:,}, {result.bins} bins {edges}, {100 * result.level:g} % intervals{over}"
    )


def print_files(results: Sequence["Evaluation"], keys: Sequence[str]) -> None:
    """Print the verdict on each of several files, then one row of numbers per file."""
    from toosure.evaluate.verdict import verdict
    from toosure.page.number_text import printed

    for result in results:
        typer.echo(f"{result.source}: {verdict(result).sentence}.")
    typer.echo("")

    shown = [key for key in keys if any(key in result.metrics for result in results)]
    table = numbers_table("file", "n", *shown)
    for result in results:
        values = (result.metrics[key].value if key in result.metrics else None for key in shown)
        table.add_row(result.source, f"{result.n:,}", *(printed(each, ".4f") for each in values))
    print_table(table)
    typer.echo("")
    for judged in dict.fromkeys(filter(None, (result.judged for result in results))):
        named = [result.source for result in results if result.judged == judged]
        typer.echo(f"{judged}: {', '.join(named)}.")
    for result in results:
        for note in filter(None, (*result.notes, result.infinite)):
            typer.echo(f"{result.source}: {note}")
    typer.echo(
        "For intervals name one file; `toosure compare A B` tests two files on the same rows."
    )


def print_subgroups(result: "Subgroups") -> None:
    """Print one row per subgroup, and how many groups were accounted for.

    On a narrow terminal the verdicts come first, a line each.
    """
    narrow = console().width < NARROW
    typer.echo("")
    if narrow:
        typer.echo("\n".join(f"{group.name}: {group.sentence}." for group in result.groups) + "\n")
    shares = ("class 1 true", "P(class 1)") if result.class_one else ("accuracy", "confidence")
    headings = ("n", *shares, "gap, points", "ECE, points", *(() if narrow else ("verdict",)))
    table = numbers_table(result.column, *headings)
    for group in result.groups:
        table.add_row(
            group.name,
            f"{group.n:,}",
            f"{100 * group.frequency:.1f} %",
            f"{100 * group.confidence:.1f} %",
            in_points(group.gap, "+.1f"),
            in_points(group.ece, ".1f"),
            *(() if narrow else (group.sentence,)),
        )
    print_table(table)
    typer.echo(f"\n{result.sentence}")


def in_points(estimate: "Estimate", form: str) -> str:
    """Print a share in points with its interval."""
    text = f"{100 * estimate.value:{form}}"
    if estimate.low is not None and estimate.high is not None:
        text += f" ({100 * estimate.low:{form}} to {100 * estimate.high:{form}})"
    return text.replace("-", "−")
