"""`--shift` and `--shifts` of evaluate and ensemble: judge runs, or their mixture."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import fail
from toosure.cli.file_options import DATA_ROOT, writing
from toosure.cli.shift_tables import error_of, error_sentence, print_record, print_side_by_side
from toosure.cli.spinner import Spinner
from toosure.finite import json_ready

if TYPE_CHECKING:
    from toosure.predictions import Predictions
    from toosure.shifts.plan import ShiftPlan
    from toosure.shifts.record import ShiftRecord
    from toosure.train import Runtime

OodWords = Annotated[
    list[str] | None,
    typer.Option(
        "--ood",
        help="With --shifts: data that the run does not know, as cifar100, cifar100-c, svhn, "
        "noise, or a file of images NAME=FILE.npz.",
    ),
]
Images = Annotated[
    int | None, typer.Option(min=2, help="With --shifts: judge so many images of each set.")
]


def predictions_under(
    shift: str, run: Path, data_root: Path | None, device: str | None
) -> "Predictions":
    """Predict the test set of a run under a corruption, by the weights of its checkpoint."""
    from toosure.data.corruptions import Shift
    from toosure.predictions import from_logits
    from toosure.train import Runtime
    from toosure.train.restore import predict_shifted
    from toosure.words.values import read

    if not run.is_dir():
        raise ValueError(f"--shift needs the folder of a run; got {run}")
    try:
        corruption = read(shift, Shift)
    except ValueError as error:
        raise ValueError(f"--shift {error}") from error
    logits, labels = predict_shifted(run, corruption, Runtime(device, data_root or DATA_ROOT))
    return replace(from_logits(logits, labels), source=f"{run.name} under {shift}")


def plan_of_options(shift: list[str] | None, ood: list[str] | None) -> "ShiftPlan | None":
    """Return the plan of `--shift all` and `--ood`; None without `--shift all`."""
    from toosure.shifts.plan import plan_of, wants_all

    try:
        if shift and wants_all(shift):
            return plan_of(shift[0], ood or ())
    except ValueError as error:
        fail(str(error))
    if ood:
        fail("--ood goes with --shift all")
    return None


def runtime_of_shifts(
    ood: list[str] | None,
    images: int | None,
    data_root: Path | None,
    device: str | None,
) -> "Runtime":
    """Return the runtime for judging runs: device, data folder and plan."""
    from toosure.shifts.plan import ShiftPlan
    from toosure.train import Runtime

    plan = ShiftPlan(ood=tuple(ood or ()), images=images)
    return Runtime(device, data_root or DATA_ROOT, shifts=plan)


def evaluate_shifts(
    folders: Sequence[Path], runtime: "Runtime", baseline: Path | None, as_json: bool
) -> None:
    """Judge each run folder, print what was found, and keep it there as `shifts.json`."""
    try:
        # Check all of them before hours are spent on the first.
        for folder in folders:
            check_run(folder, runtime)
        if baseline is not None:
            check_run(baseline, corruptions_only(runtime))
            check_baseline(folders, baseline)
        records = {name: record_of(f, runtime) for name, f in by_name(folders).items()}
        reference = None
        if baseline is not None:
            reference = record_of(baseline, corruptions_only(runtime))
        errors = {name: error_of(record, reference) for name, record in records.items()}
    except ValueError as error:
        fail(str(error))

    if as_json:
        for name, record in records.items():
            relative = (
                {} if reference is None else json_ready({"mean_corruption_error": errors[name]})
            )
            print(json.dumps({"run": name} | record.as_json() | relative, allow_nan=False))
        return

    if len(records) == 1:
        print_record(*records.values())
    else:
        print_side_by_side(records)
    for name, value in errors.items():
        typer.echo(f"{name}: {error_sentence(value, baseline)}")


def corruptions_only(runtime: "Runtime") -> "Runtime":
    """Return a runtime without unknown sets: the baseline is needed under corruptions only."""
    assert runtime.shifts is not None
    return replace(runtime, shifts=replace(runtime.shifts, ood=()))


def by_name(folders: Sequence[Path]) -> dict[str, Path]:
    """Return folders by name, or by path if two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return {
        str(folder) if names.count(name) > 1 else name: folder
        for name, folder in zip(names, folders, strict=True)
    }


def check_run(folder: Path, runtime: "Runtime") -> None:
    """Raise unless a folder is a run that was judged on shifts, or can be."""
    from toosure.runs import Run
    from toosure.train.restore import check_trained_here
    from toosure.train.shifts import (
        can_be_judged,
        is_judged,
        more_images_before,
        plan_with_earlier_sets,
    )

    if folder.is_dir():
        check_trained_here(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"--shifts needs the folder of a run; got {folder}")
    run = Run(folder)
    assert runtime.shifts is not None
    if is_judged(run, runtime.shifts):
        return
    before = more_images_before(run, runtime.shifts)
    if before:
        raise ValueError(
            f"{folder} was judged on {before:,} images, and would lose that for fewer: leave "
            f"--images out, or give {before} or more. To keep both, judge a copy of the folder"
        )
    if not can_be_judged(run):
        raise ValueError(
            f"{folder} cannot be judged on shifts: that takes a complete run (it is {run.status}) "
            "and its checkpoint. `toosure train --shift all` judges a run at its end"
        )
    plan_with_earlier_sets(run, runtime.shifts)  # raises if one cannot be judged again


def check_baseline(folders: Sequence[Path], baseline: Path) -> None:
    """Raise if the baseline was trained on other data than the runs."""
    from toosure.runs import Run

    names = [str(Run(each).config["data"]).partition(":")[0] for each in (baseline, *folders)]
    for folder, name in zip(folders, names[1:], strict=True):
        if name != names[0]:
            raise ValueError(
                f"{folder} was trained on {name}, and --baseline on {names[0]}: the mean "
                "corruption error compares runs on the same data"
            )


def record_of(folder: Path, runtime: "Runtime") -> "ShiftRecord":
    """Return the record of a run under shifts, from its folder; judge it now if there is none."""
    from toosure.runs import Run, RunWriter
    from toosure.shifts.record import FILE, ShiftRecord
    from toosure.train.shifts import (
        is_judged,
        judge_finished,
        plan_with_earlier_sets,
        with_earlier_sets,
    )

    run = Run(folder)
    assert runtime.shifts is not None
    if is_judged(run, runtime.shifts):
        typer.echo(f"{run.name} was judged before: {folder / 'shifts.json'}", err=True)
        return ShiftRecord.of(run.shifts)

    runtime = replace(runtime, shifts=plan_with_earlier_sets(run, runtime.shifts))
    with RunWriter(folder) as writer, Spinner(f"judging {run.name}") as spinner:
        record = judge_finished(
            folder,
            runtime,
            lambda done, total, name: spinner.update(f"judging {name}, {done} of {total}"),
        )
        record = with_earlier_sets(record, ShiftRecord.read(run.shifts))
        writer.write_json(FILE, record.as_json())
    typer.echo(f"kept in {folder / 'shifts.json'}", err=True)
    return record


def ensemble_shifts(
    folders: Sequence[Path], runtime: "Runtime", output: Path | None, as_json: bool
) -> None:
    """Judge the mixture of runs, print the results, and write them if asked for."""
    from toosure.train.run_mixture import judge_mixture

    try:
        if len(folders) < 2:
            raise ValueError(f"an ensemble needs two members or more; got {len(folders)}")
        twice = [folder for folder in folders if folders.count(folder) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is given twice: every member counts once")

        with Spinner(f"loading {len(folders)} runs") as spinner:
            record = judge_mixture(
                folders,
                runtime,
                lambda done, total, name: spinner.update(f"judging {name}, {done} of {total}"),
            )
        if output is not None:
            write_mixture(output, record)
    except ValueError as error:
        fail(str(error))

    if as_json:
        members = {"members": [folder.name for folder in folders]}
        print(json.dumps(members | record.as_json(), allow_nan=False))
    else:
        print_record(record)
        percent = f"{100 * record.mean_error:.2f} %"
        typer.echo(f"mixture of {len(folders)}: mean error under corruption {percent}")


def write_mixture(output: Path, record: "ShiftRecord") -> None:
    """Write the record of a mixture: to a .json file, or as `shifts.json` into a folder."""
    from toosure.runs.files import write_json
    from toosure.shifts.record import FILE

    path = output if output.suffix.lower() == ".json" else output / FILE
    with writing(path):
        write_json(path, record.as_json())
    typer.echo(f"written: {path}", err=True)
