"""`toosure evaluate`: how far the probabilities in a file can be trusted."""

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toosure.cli.app import app, fail
from toosure.cli.evaluation_options import Bins, BootstrapSeed, Level, Split
from toosure.cli.evaluation_tables import print_evaluation, print_files, print_subgroups
from toosure.cli.fail_if import exit_if_one_holds, judge_all
from toosure.cli.file_options import (
    ClassNames,
    FileOptions,
    Groups,
    IgnoreIndex,
    KindOption,
    LabelColumn,
    LabelsFile,
    ScoreColumns,
    TopLabel,
    kept_split,
    paired_files,
    predictions_file,
    reject_all_except,
    require_option,
    write_text,
)
from toosure.cli.multilabel import evaluate_labels, show_labels
from toosure.cli.output import ignore_broken_pipe
from toosure.cli.shifts import (
    Images,
    OodWords,
    evaluate_shifts,
    predictions_under,
    runtime_of_shifts,
)
from toosure.cli.spinner import Spinner

if TYPE_CHECKING:
    from toosure.evaluate import Evaluation
    from toosure.evaluate.conditions import Condition
    from toosure.evaluate.subgroups import Subgroups
    from toosure.predictions import Predictions

REPORT_HINT = "`toosure report` shows shifts on its page"
WITH_SHIFTS = ("--ood", "--images", "--baseline", "--data-root", "--device", "--json")
ALWAYS = ("--bins", "--edge", "--ci", "--seed", "--json", "--html")
WITH_LABELS = (
    "--kind",
    "--label-column",
    "--columns",
    "--classes",
    "--ignore-index",
    "--split",
    "--fail-if",
)
WITH_SHIFT = ("--data-root", "--device", "--top-label", "--class-1", "--all", "--fail-if")
Settings = dict[str, Any]  # bins, edge, level and seed
Item = TypeVar("Item")


class Edge(StrEnum):
    """Which edge a bin includes."""

    right = "right"
    left = "left"


@app.command()
def evaluate(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Predictions (.npz, .npy with its labels, .pt, .csv, .jsonl, .parquet), or a "
            "run folder. Several files make one table.",
        ),
    ],
    kind: KindOption = None,
    bins: Bins = 15,
    edge: Annotated[Edge, typer.Option(help="Bins are (a, b] (right) or [a, b) (left).")] = (
        Edge.right
    ),
    everything: Annotated[
        bool, typer.Option("--all", help="Print every metric, not only the first six.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every metric as one JSON object per file.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", "-o", help="Write a page with figures here.")
    ] = None,
    ci: Level = 0.95,
    split: Split = None,
    label_column: LabelColumn = None,
    columns: ScoreColumns = None,
    classes: ClassNames = None,
    ignore_index: IgnoreIndex = None,
    groups: Groups = None,
    labels: LabelsFile = None,
    top_label: TopLabel = None,
    multilabel: Annotated[
        bool,
        typer.Option(
            "--multilabel", help="Each of K labels is 0 or 1 by itself: scores and labels (N, K)."
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(help="Also judge the rows of each value in this column by themselves."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            help="Exit with 1 if the whole interval lies beyond a bound, as 'ece > 0.05'. May be "
            "given several times.",
        ),
    ] = None,
    seed: BootstrapSeed = 0,
    shift: Annotated[
        str | None, typer.Option(help="Of a run: predict its test set corrupted, as fog:3.")
    ] = None,
    shifts: Annotated[
        bool,
        typer.Option(
            "--shifts", help="Of a run: judge its test set under 15 corruptions at 5 severities."
        ),
    ] = False,
    ood: OodWords = None,
    images: Images = None,
    baseline: Annotated[
        Path | None, typer.Option(help="With --shifts: the run whose errors mCE divides by.")
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="With a shift: where data lie. [data]", show_default=False)
    ] = None,
    device: Annotated[str | None, typer.Option(help="With a shift: cpu, cuda.")] = None,
) -> None:
    """Say how far the probabilities in FILE can be trusted.

    Prints a verdict and the metrics with their intervals.

    A run folder is judged on the split named; else on the test set, or validation without one.
    """
    from toosure.evaluate.conditions import parse_condition
    from toosure.evaluate.subgroups import subgroups
    from toosure.runs.files import check_target

    ignore_broken_pipe("")  # `| head` must not change the exit code of --fail-if
    reading = FileOptions(
        kind, label_column, columns, classes, ignore_index, top_label=top_label, groups=groups
    )
    settings: Settings = {"bins": bins, "edge": edge.value, "level": ci, "seed": seed}
    try:
        check_together(context)
        if shifts:
            runtime = runtime_of_shifts(ood, images, data_root, device)
            evaluate_shifts(files, runtime, baseline, as_json)
            return

        if html:
            check_target(html, *files, labels)
        conditions = [parse_condition(text) for text in fail_if or []]
        if multilabel:
            only_one(files, "--multilabel")
            labelled = evaluate_labels(files[0], reading, split, settings)
            verdicts = judge_all(conditions, [labelled])
            show_labels(labelled, html, as_json)
            exit_if_one_holds(verdicts)
            return

        keys = None if everything or as_json or html else first_keys(conditions)
        with Spinner("reading") as spinner:
            if shift:
                run = only_one(files, "--shift")
                shifted = predictions_under(shift, run, data_root, device)
                predictions = [reading.judged(shifted)]
            else:
                predictions = read_all(files, reading, split, labels)
            if html:
                only_one(predictions, "--html")

            results = measure_all(predictions, keys, settings, spinner)
            by_column = [subgroups(each, by, **settings) for each in predictions] if by else []
            if html:
                write_page(results[0], by_column[0] if by_column else None, html)
        verdicts = judge_all(conditions, results)
    except ValueError as error:
        fail(str(error))

    show(results, by_column, as_json, first_keys(conditions) if not everything else None)
    if html:
        typer.echo(f"page: {html}", err=True)
    exit_if_one_holds(verdicts)


def check_together(context: typer.Context) -> None:
    """Raise on options that have no effect beside others."""
    given = context.params
    if given["shifts"]:
        reject_all_except(context, "--shifts", WITH_SHIFTS, REPORT_HINT)
        return

    require_option("--shifts", {f"--{name}": given[name] for name in ("ood", "images", "baseline")})
    if given["multilabel"]:
        reject_all_except(context, "--multilabel", WITH_LABELS + ALWAYS)
    if given["shift"]:
        reject_all_except(context, "--shift", WITH_SHIFT + ALWAYS)
    else:
        of_runs = {"--device": given["device"], "--data-root": given["data_root"]}
        require_option("--shift or --shifts", of_runs)


def first_keys(conditions: Sequence["Condition"]) -> list[str]:
    """Return the metrics that are shown first, and the metrics that conditions name."""
    from toosure.evaluate.conditions import metric_of
    from toosure.quantities import shown_in

    keys = [q.key for q in shown_in("first") if q.key != "gap"]
    return list(dict.fromkeys([*keys, *filter(None, map(metric_of, conditions))]))


def measure_all(
    predictions: Sequence["Predictions"],
    keys: Sequence[str] | None,
    settings: Settings,
    spinner: Spinner,
) -> list["Evaluation"]:
    """Evaluate the predictions of every file: all metrics, or those in `keys`."""
    from toosure.evaluate import evaluate as measure

    results = []
    for each in predictions:
        spinner.update(f"measuring {each.source}")
        results.append(measure(each, multilabel=False, metrics=keys, **settings))
    return results


def read_all(
    files: Sequence[Path], reading: FileOptions, split: str | None, labels: Path | None
) -> list["Predictions"]:
    """Read every file; for a run folder, its test set or the given split."""
    predictions = []
    for path, truth in paired_files(files, labels):
        if path.is_dir():
            in_run = reading.read(kept := predictions_file(path), split or kept_split(kept))
            predictions.append(replace(in_run, source=path.name or in_run.source))
        else:
            predictions.append(reading.read(path, split, truth))
    return predictions


def only_one(items: Sequence[Item], option: str) -> Item:
    """Return the only item; raise if there are several, which an option does not allow."""
    if len(items) != 1:
        raise ValueError(f"{option} goes with one file; got {len(items)}")
    return items[0]


def show(
    results: Sequence["Evaluation"],
    groups: Sequence["Subgroups"],
    as_json: bool,
    keys: Sequence[str] | None,
) -> None:
    """Print what was found, as tables or as JSON."""
    if as_json:
        for place, result in enumerate(results):
            record = result.as_json()
            if len(results) > 1:
                record["file"] = result.source
            if groups:
                record["by"] = groups[place].as_json()
            print(json.dumps(record, allow_nan=False))
        return

    if len(results) == 1:
        print_evaluation(results[0], keys)
    else:
        print_files(results, keys or list(results[0].metrics))
    for result, group in zip(results, groups, strict=False):
        if len(results) > 1:
            typer.echo(f"\n{result.source}:")
        print_subgroups(group)


def write_page(result: "Evaluation", by: "Subgroups | None", path: Path) -> None:
    """Write the page of an evaluation; raise if it cannot be written."""
    from toosure.page.evaluation import evaluation_page

    write_text(path, evaluation_page(result, by))
