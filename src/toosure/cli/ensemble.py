"""`toosure ensemble`: average finished runs into one prediction, without training."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.evaluation_options import AsJson, Bins, BootstrapSeed, Level, Page
from toosure.cli.evaluation_tables import print_metrics
from toosure.cli.file_options import (
    ClassNames,
    FileOptions,
    IgnoreIndex,
    KindOption,
    LabelColumn,
    ScoreColumns,
    reject_all_except,
    require_option,
    write_text,
    writing,
)
from toosure.cli.shifts import Images, OodWords, ensemble_shifts, runtime_of_shifts
from toosure.cli.spinner import Spinner
from toosure.cli.tables import numbers_table, print_table

if TYPE_CHECKING:
    from toosure.evaluate.ensemble import Ensemble
    from toosure.predictions import Predictions

WITH_SHIFTS = ("--ood", "--images", "--data-root", "--device", "-o", "--json")
SPLITS = ("val", "test", "shift")


@app.command()
def ensemble(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of finished runs, or files of predictions, of the same rows.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write the mixture here (.npz). With --shifts: a .json file, or a folder.",
        ),
    ] = None,
    of: Annotated[
        str | None, typer.Option(help="Average what a run saved as ema, swa, swag or laplace.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Judge on these rows. [test, or val where there is none]")
    ] = None,
    kind: KindOption = None,
    label_column: LabelColumn = None,
    columns: ScoreColumns = None,
    classes: ClassNames = None,
    ignore_index: IgnoreIndex = None,
    html: Page = None,
    as_json: AsJson = False,
    bins: Bins = 15,
    ci: Level = 0.95,
    seed: BootstrapSeed = 0,
    shifts: Annotated[
        bool,
        typer.Option("--shifts", help="Judge the mixture under 15 corruptions at 5 severities."),
    ] = False,
    ood: OodWords = None,
    images: Images = None,
    data_root: Annotated[
        Path | None, typer.Option(help="With --shifts: where data lie. [data]", show_default=False)
    ] = None,
    device: Annotated[str | None, typer.Option(help="With --shifts: cpu, cuda.")] = None,
) -> None:
    """Average the probabilities of finished runs.

    Says how far the mixture can be trusted, and shows each member alone, how far they disagree, and
    what each adds. The file that -o writes is read by evaluate, calibrate and compare; with --split
    test where the members are runs.
    """
    from toosure.evaluate.ensemble import average_predictions
    from toosure.runs.files import check_target

    reading = FileOptions(kind, label_column, columns, classes, ignore_index)
    try:
        if shifts:
            reject_all_except(context, "--shifts", WITH_SHIFTS)
            runtime = runtime_of_shifts(ood, images, data_root, device)
            ensemble_shifts(runs, runtime, output, as_json)
            return

        of_shifts = {"--ood": ood, "--images": images, "--device": device}
        require_option("--shifts", of_shifts | {"--data-root": data_root})
        if output is not None and output.suffix.lower() != ".npz":
            raise ValueError(f"{output}: the mixture is written as .npz")
        for path in filter(None, (output, html)):
            check_target(path, *runs)
        with Spinner("reading") as spinner:
            members = read_members(runs, of, split, reading)
            judged = judged_split(members, split)
            spinner.update("measuring")
            settings = {"bins": bins, "level": ci, "seed": seed}
            result = average_predictions(members, judged, **settings)
        write_files(result, output, html)
    except ValueError as error:
        fail(str(error))

    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
    else:
        print_ensemble(result)


def read_members(
    runs: list[Path], of: str | None, split: str | None, reading: FileOptions
) -> "dict[str, dict[str, Predictions]]":
    """Read the predictions of each run by split, under a unique name."""
    members: dict[str, dict[str, Predictions]] = {}
    for run in runs:
        name = run.name if sum(other.name == run.name for other in runs) == 1 else str(run)
        if name in members:
            raise ValueError(f"{run} is given twice: every member counts once")
        if of and not run.is_dir():
            raise ValueError(f"--of goes with folders of runs; {run} is not one")
        if run.is_dir():
            members[name] = read_run(run, of, reading)
        else:
            members[name] = {split or "": reading.read(run, split)}
    return members


def read_run(run: Path, of: str | None, reading: FileOptions) -> "dict[str, Predictions]":
    """Read every split that a run saved."""
    from toosure.predictions.file_formats import array_names

    path = run / (f"predictions_{of}.npz" if of else "predictions.npz")
    if not path.is_file():
        also = sorted(p.stem.removeprefix("predictions_") for p in run.glob("predictions_*.npz"))
        hint = f"; it has {', '.join(also)}" if also else ""
        raise ValueError(f"{run} holds no {path.name}: name folders of runs that ended{hint}")

    arrays = array_names(path)
    names = [name for name in SPLITS if f"{name}_logits" in arrays]
    return {name: reading.read(path, name) for name in names}


def judged_split(members: "dict[str, dict[str, Predictions]]", split: str | None) -> str:
    """Return the split to judge on: as asked for, else test, else validation."""
    if split is not None:
        return split
    shared = [
        name for name in next(iter(members.values())) if all(name in m for m in members.values())
    ]
    for name in ("test", "val", ""):
        if name in shared:
            return name
    raise ValueError("the members share no rows: give runs, or files, of the same data")


def write_files(result: "Ensemble", output: Path | None, html: Path | None) -> None:
    """Write the mixture and the page, if asked for."""
    from toosure.runs.files import write_arrays

    if output:
        with writing(output):
            write_arrays(output, result.arrays())
        typer.echo(f"mixture: {output}", err=True)
    if html:
        from toosure.page.ensemble import ensemble_page

        write_text(html, ensemble_page(result))
        typer.echo(f"page: {html}", err=True)


def print_ensemble(result: "Ensemble") -> None:
    """Print the verdict on the mixture, and one row per member."""
    from toosure.page.number_text import printed
    from toosure.quantities import shown_in

    keys = [q.key for q in shown_in("first") if q.key != "gap"]
    evaluation = result.evaluation
    print_metrics(evaluation, keys)
    if evaluation.judged:
        typer.echo(f"{evaluation.judged}.")
    typer.echo(f"\n{result.sentence}.\n")

    table = numbers_table("member", "accuracy", "NLL", "ECE", "gap", "adds (NLL)")
    for member in result.members:
        numbers = (member.accuracy, member.nll, member.ece, member.gap, member.nll_gain)
        table.add_row(shortened_name(member.name), *(printed(each, ".4f") for each in numbers))
    print_table(table)
    gap = "mean confidence minus accuracy"
    if evaluation.class_one:
        gap = "mean P(class 1) minus the frequency of class 1"
    typer.echo(f"\ngap: {gap}. adds: NLL of the mixture without the member minus that with it.")


def shortened_name(name: str) -> str:
    """Shorten a name in its middle: names of runs begin with the data and end with the seed.

    >>> shortened_name("cifar10-augmenttrue-resnet18-sgd-lr0.1-momentum0.9-s3-17fde47a")
    'cifar10-augm…0.9-s3-17fde47a'
    """
    return name if len(name) <= 28 else f"{name[:12]}…{name[-15:]}"
