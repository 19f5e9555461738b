"""`toosure calibrate`: fit a calibrator on some rows, judge it on others, save it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from toosure.cli.app import app, fail
from toosure.cli.evaluation_options import AsJson, Bins, Level, Page
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
    keeps_test_rows,
    predictions_file,
    reject_all_except,
    reject_with,
    require_option,
    write_text,
    writing,
)
from toosure.cli.laplace import calibrate_by_laplace
from toosure.cli.tables import numbers_table, print_table

if TYPE_CHECKING:
    from toosure.evaluate.recalibrated import Recalibration
    from toosure.posthoc import Trial

CALIBRATOR_SUFFIXES = (".pt", ".pth", "")
WITH_LAPLACE = ("--method", "--data-root", "--device", "--json", "--bins", "--ci", "--seed")


@app.command()
def calibrate(
    context: typer.Context,
    val: Annotated[
        Path,
        typer.Argument(help="Predictions to fit on, which the model never saw; or a run folder."),
    ],
    test: Annotated[
        Path | None, typer.Argument(help="Predictions to judge on; without, folds of VAL.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto: the lowest held-out NLL; or one: temperature, bbq, ...; laplace for a run."
        ),
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Save the calibrator here (.pt).")
    ] = None,
    html: Page = None,
    as_json: AsJson = False,
    kind: KindOption = None,
    label_column: LabelColumn = None,
    columns: ScoreColumns = None,
    classes: ClassNames = None,
    ignore_index: IgnoreIndex = None,
    groups: Groups = None,
    labels: Annotated[
        Path | None, typer.Option(help="The .npy of the labels, where VAL is a .npy of scores.")
    ] = None,
    test_labels: Annotated[Path | None, typer.Option(help="The same for TEST.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Read the arrays val_logits, val_labels of VAL for 'val'.")
    ] = None,
    test_split: Annotated[
        str | None, typer.Option(help="The same for TEST, as 'test'; without TEST: of VAL.")
    ] = None,
    top_label: TopLabel = None,
    folds: Annotated[
        int, typer.Option(min=2, help="Folds of VAL for the choice, and where TEST is missing.")
    ] = 5,
    bins: Bins = 15,
    ci: Level = 0.95,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of folds and bootstrap.")
    ] = 0,
    data_root: Annotated[
        Path | None, typer.Option(help="With laplace: where data lie. [data]", show_default=False)
    ] = None,
    device: Annotated[str | None, typer.Option(help="With laplace: cpu, cuda.")] = None,
) -> None:
    """Fit a calibrator on VAL, and judge it on TEST.

    Without --method, the calibrator with the lowest held-out NLL is taken.

    Of a run folder, the splits are val and test; folds of val, where the run kept no test.
    """
    from toosure.recalibration import recalibrate

    reading = FileOptions(
        kind, label_column, columns, classes, ignore_index, top_label=top_label, groups=groups
    )
    run = val if val.is_dir() else None
    try:
        if method == "laplace":
            reject_with({"TEST": test}, "--method laplace")
            reject_all_except(context, "--method laplace", WITH_LAPLACE)
            calibrate_by_laplace(val, data_root, device, as_json, bins, ci, seed)
            return
        require_option("--method laplace", {"--device": device, "--data-root": data_root})
        check_wanted(method, output, html, (val, test, labels, test_labels))
        sources = chosen_sources(val, split, test, test_split)
        fit = reading.read(sources.val, sources.split, labels)
        judge = None
        if sources.test:
            judge = reading.read(sources.test, sources.test_split, test_labels)
        on_trial = print_trial if method == "auto" else lambda trial: None
        result = recalibrate(fit, judge, method, folds, bins, ci, seed, on_trial)
    except ValueError as error:
        fail(str(error))

    # Write files first: the output may be cut off, as by `| head`. But a file that cannot be
    # written must not hide the result.
    problem = ""
    try:
        write_files(result, output, html)
        if run is not None and judge is not None and sources.test == sources.val:
            save_in_run(run, result)
    except ValueError as error:
        problem = str(error)

    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
    else:
        print_result(result)
    if problem:
        fail(problem)


class Sources(NamedTuple):
    """The rows to fit on and the rows to judge on: files, and splits in them."""

    val: Path
    split: str | None
    test: Path | None  # without it, folds of `val` judge
    test_split: str | None


def chosen_sources(
    val: Path, split: str | None, test: Path | None, test_split: str | None
) -> Sources:
    """Return the sources that the command line names; for a run folder, its val and test.

    Raise if both are the same rows.
    """
    if val.is_dir():
        val = predictions_file(val)
        split = split or "val"
        if test is None and test_split is None:
            judge = "folds of its validation rows judge"
            test_split = "test" if keeps_test_rows(val, judge) else None
    if test is None and test_split:
        test = val

    if test and test.exists() and val.exists() and test.samefile(val) and split == test_split:
        raise ValueError(
            f"{val.name} is given twice: a calibrator must not be judged on the rows of its "
            "fit; give other rows, or one file, and folds of it will be held out"
        )
    return Sources(val, split, test, test_split)


def write_files(result: "Recalibration", output: Path | None, html: Path | None) -> None:
    """Write the calibrator and the page, if asked for."""
    from toosure.posthoc import save_calibrator

    if output:
        save_calibrator(result.choice.calibrator, output)
        typer.echo(f"calibrator: {output}", err=True)
    if html:
        write_page(result, html)
        typer.echo(f"page: {html}", err=True)


def save_in_run(run: Path, result: "Recalibration") -> None:
    """Add the result of a calibrator to the folder of its run."""
    from toosure.runs.files import write_json
    from toosure.runs.json_text import read_json

    if result.choice.name == "uncalibrated":
        return
    file = run / "calibrators.json"
    record = result.as_json()
    del record["trials"]
    try:
        with writing(file):
            write_json(file, read_json(file, if_damaged={}) | {result.choice.name: record})
    except ValueError as error:  # a folder to read only: what was asked for is done all the same
        typer.echo(f"not kept for the report: {error}", err=True)
        return
    typer.echo(f"for the report: {file}", err=True)


def check_wanted(
    method: str, output: Path | None, html: Path | None, read: Sequence[Path | None]
) -> None:
    """Raise before the work on an unknown method, and on files that cannot be written."""
    from toosure.posthoc.calibrator_file import name_of
    from toosure.recalibration import makers
    from toosure.runs.files import check_target

    for make in makers(method).values():
        if output:
            name_of(type(make()))
    if output and html and output.absolute() == html.absolute():
        raise ValueError(f"-o and --html both name {output}: give each its own file")
    for path in (output, html):
        if path:
            check_target(path, *read)
    if output and output.suffix.lower() not in CALIBRATOR_SUFFIXES:
        named = output.with_suffix(".pt")
        raise ValueError(
            f"-o {output}: a calibrator is written as .pt, so say -o {named}; calibrated "
            f"probabilities are written by `toosure apply {named} FILE -o {output.name}`"
        )


def print_trial(trial: "Trial") -> None:
    """Print the result of each calibrator when it is known; with many classes each takes long."""
    did = "left out" if trial.nll is None else f"NLL {trial.nll:.4f} held out"
    typer.echo(f"tried {trial.name}: {did}", err=True)


def write_page(result: "Recalibration", path: Path) -> None:
    """Write the page; raise if it cannot be written."""
    from toosure.page.calibration import calibration_page

    write_text(path, calibration_page(result))


def print_result(result: "Recalibration") -> None:
    """Print the verdict, the metrics before and after, and all calibrators tried."""
    from toosure.page.number_text import printed

    note = result.choice.calibrator.note
    lines = [f"{result.sentence}."]
    if result.remaining:
        tried = {trial.name for trial in result.choice.trials} - {"uncalibrated"}
        hint = ": `--method auto` tries other calibrators" if len(tried) == 1 else ""
        lines.append(f"{result.remaining}{hint}.")
    if note:
        lines.append(f"Note: {note}.")
    typer.echo("\n".join([*lines, ""]))

    both = numbers_table("metric", "before", "low", "high", "after", "low", "high")
    for name, before in result.before.metrics.items():
        shown = (printed(each, ".4f") for each in (*before, *result.after.metrics[name]))
        both.add_row(name, *shown)
    print_table(both)
    typer.echo(f"\nJudged on {result.held_out}; {100 * result.level:g} % intervals.")
    print_judged(result)
    typer.echo(f"{result.omissions}\n" if result.omissions else "")

    trials = numbers_table("method", "NLL held out", "change", "± s.e.")
    for trial in result.choice.trials:
        change = printed(trial.change, "+.4f")
        error = printed(trial.error, ".4f")
        trials.add_row(trial.name, printed(trial.nll, ".4f"), change, error)
    print_table(trials)
    for trial in result.choice.trials:
        if trial.note:
            typer.echo(f"{trial.name}: {trial.note}.")
