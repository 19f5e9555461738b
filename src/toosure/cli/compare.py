"""`toosure compare`: which of two models is better on the same rows, and is it more than chance."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.evaluation_options import AsJson, BootstrapSeed, Level, Split
from toosure.cli.evaluation_tables import print_judged
from toosure.cli.file_options import (
    ClassNames,
    FileOptions,
    Groups,
    IgnoreIndex,
    KindOption,
    LabelColumn,
    ScoreColumns,
    TopLabel,
    predictions_file,
    write_text,
)
from toosure.cli.spinner import Spinner
from toosure.cli.tables import numbers_table, print_table

if TYPE_CHECKING:
    from toosure.evaluate.paired import Comparison
    from toosure.predictions import Predictions


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Predictions, or a run folder.")],
    second: Annotated[Path, typer.Argument(help="Those of another model on the same rows.")],
    html: Annotated[
        Path | None, typer.Option("-o", "--html", help="Write a page with figures here.")
    ] = None,
    as_json: AsJson = False,
    kind: KindOption = None,
    label_column: LabelColumn = None,
    columns: ScoreColumns = None,
    classes: ClassNames = None,
    ignore_index: IgnoreIndex = None,
    groups: Groups = None,
    labels: Annotated[
        Path | None, typer.Option(help="The .npy of the labels, where both are .npy of scores.")
    ] = None,
    split: Split = None,
    top_label: TopLabel = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the ECE.")] = 15,
    ci: Level = 0.95,
    seed: BootstrapSeed = 0,
) -> None:
    """Compare SECOND with FIRST on the same rows.

    Prints the differences with their intervals. That the rows are the same is checked by their
    labels, and by a column `id` if there is one.
    """
    from toosure.evaluate.paired import compare as paired
    from toosure.runs.files import check_target

    reading = FileOptions(
        kind, label_column, columns, classes, ignore_index, top_label=top_label, groups=groups
    )
    try:
        if html:
            check_target(html, first, second)
        with Spinner("reading") as spinner:
            sides = []
            for path in (first, second):
                own = split or "test" if path.is_dir() else split
                file = predictions_file(path) if path.is_dir() else path
                sides.append(reading.read(file, own, labels))

            def show_progress(done: int, of: int) -> None:
                if done % 50 == 0:
                    spinner.update(f"resampling, {done} of {of}")

            result = paired(
                *with_names(sides, first, second), bins, ci, seed, on_progress=show_progress
            )
            if html:
                write_page(result, html)
    except ValueError as error:
        fail(str(error))

    if as_json:
        print(json.dumps(result.as_json()))
    else:
        print_comparison(result)
    if html:
        typer.echo(f"page: {html}", err=True)


def with_names(
    sides: Sequence["Predictions"], first: Path, second: Path
) -> tuple["Predictions", "Predictions"]:
    """Name both sides so that they can be told apart."""
    names = [first.name, second.name]
    if names[0] == names[1]:
        names = [str(first), str(second)]
    if names[0] == names[1]:
        raise ValueError(f"{first.name} is given twice: name two files")
    one, other = (replace(side, source=name) for side, name in zip(sides, names, strict=True))
    return one, other


def write_page(result: "Comparison", path: Path) -> None:
    """Write the page of a comparison; raise if it cannot be written."""
    from toosure.page.two_models import comparison_page

    write_text(path, comparison_page(result))


def print_comparison(result: "Comparison") -> None:
    """Print the verdict, then each number of both and its change."""
    from toosure.page.number_text import printed
    from toosure.page.two_models import short_names, word_of

    sentence = result.sentence
    if sentence.startswith("the second"):  # else it starts with a number or a name
        sentence = sentence[:1].upper() + sentence[1:]
    typer.echo(f"{sentence}.")
    if result.names != (result.first, result.second):
        typer.echo(f"first:  {result.first}\nsecond: {result.second}")
    typer.echo("")
    headings = ("metric", *short_names(result), "change", "low", "high", "second is")
    table = numbers_table(*headings)
    for row in result.differences:
        both = (printed(each, ".4f") for each in (row.first, row.second))
        change = (printed(each, "+.4f") for each in row.change)
        table.add_row(row.key, *both, *change, word_of(row))
    print_table(table)

    typer.echo(
        f"\nn = {result.n:,} ({result.checked}), {result.bins} bins, {100 * result.level:g} % "
        f"intervals, each by itself, by resampling the same {result.resampled} of both"
    )
    print_judged(result)
    if result.left_out:
        typer.echo(result.left_out)
