"""`toosure tune`: search words with ranges and choices for the best runs, with Optuna."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toosure.cli.app import app, fail
from toosure.cli.multi_value import MultiValueCommand
from toosure.cli.option_values import Texts, comma_separated
from toosure.cli.output import ignore_broken_pipe
from toosure.cli.run_options import (
    ClusterAddress,
    CpusPerRun,
    Data,
    DataRoot,
    Device,
    Download,
    GpusPerRun,
    Objective,
    Schedule,
    Threads,
)
from toosure.cli.tables import console, terminal_table

if TYPE_CHECKING:
    from rich.table import Table

    from toosure.integrations.optuna import Goal, Trial, Tuning
    from toosure.integrations.search_space import SearchSpace
    from toosure.train import ProgressListener

MAX_ROWS = 20  # of the table at the end


@app.command(cls=MultiValueCommand)
def tune(
    optimizer: Annotated[
        Texts,
        typer.Option(help="csam:rho=0.02..0.5~log,gamma=0|1; several words are alternatives."),
    ] = None,
    data: Data = None,
    model: Annotated[
        Texts, typer.Option(help="Network: mlp:width=16..128~16, resnet20, ... [mlp]")
    ] = None,
    loss: Annotated[
        Texts, typer.Option(help="The criterion: ce, focal:gamma=0.5..5, ... [ce]")
    ] = None,
    objective: Objective = None,
    schedule: Schedule = None,
    steps: Annotated[str | None, typer.Option(help="How many steps. [2000]")] = None,
    batch: Annotated[
        str | None, typer.Option(help="Examples per step: 32|64|128, full. [128]")
    ] = None,
    clip: Annotated[
        str | None, typer.Option(help="Largest norm of a gradient: 0.1..5~log. [none]")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="The seed of all runs. [0]")] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, float64, bf16, fp16. [float32]")
    ] = None,
    measure: Annotated[
        Texts, typer.Option(help="Beside metrics and margins: gn_sharpness, ... [none]")
    ] = None,
    every: Annotated[str | None, typer.Option(help="Measure every so many steps. [20]")] = None,
    goal: Annotated[
        Texts,
        typer.Option(help="What to make best on validation data. [accuracy nll]"),
    ] = None,
    trials: Annotated[int, typer.Option(help="Trials in all, with those done before.")] = 20,
    prune: Annotated[bool, typer.Option(help="With one goal: stop runs that fall behind.")] = True,
    search_seed: Annotated[int, typer.Option(help="The seed of the search.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the study and its runs go.")] = Path("runs/tune"),
    data_root: DataRoot = Path("data"),
    download: Download = False,
    device: Device = None,
    threads: Threads = None,
    workers: Annotated[int, typer.Option(help="Trials that run side by side.")] = 1,
    on: ClusterAddress = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
) -> None:
    """Search ranges of settings for the best runs.

    Values may be ranges (0.01..1~log, 16..64~16) and choices (a|b).

    Repeating a command finishes what is missing; a larger --trials adds to it. `toosure report` of
    the folder shows the Pareto front.
    """
    from toosure.cli.train import cluster_of
    from toosure.integrations.optuna import ended_trials
    from toosure.integrations.tune import tune as search
    from toosure.runs.files import check_folder
    from toosure.runs.storage import check_local
    from toosure.train import Runtime

    sys.path.insert(0, "")  # package.module:factory is looked for in the current folder
    given: dict[str, Any] = {
        "optimizer": optimizer,
        "data": data,
        "model": model,
        "loss": loss,
        "objective": objective,
        "schedule": schedule,
        "steps": steps,
        "batch": batch,
        "clip": clip,
        "seed": seed,
        "every": every,
        "precision": precision,
    }
    try:
        check_local(out, "toosure tune")
        check_folder(out)
        space = space_of(given, measure)
        runtime = Runtime(device, data_root, download, threads=threads)
        cluster = cluster_of(on, cpus_per_run, gpus_per_run)
        ignore_broken_pipe(f"the search goes on, with its runs in {out}")
        listener = listener_for(space, trials - ended_trials(out))
        result = search(
            space,
            goal or ("accuracy", "nll"),
            trials,
            out,
            runtime,
            listener,
            workers,
            cluster,
            search_seed,
            prune,
        )
    except ValueError as error:
        fail(str(error))
    except KeyboardInterrupt:
        typer.echo("Ended at once; repeat the command to go on from the last checkpoint.", err=True)
        raise typer.Exit(130) from None
    finish(result, out)


def space_of(given: dict[str, Any], measure: Texts) -> "SearchSpace":
    """Return the space that the options name; raise if a run of it cannot be trained."""
    from toosure.integrations.search_space import SearchSpace
    from toosure.train.check_settings import check_settings

    settings = {name: value for name, value in given.items() if value}
    settings["measure"] = [] if measure in (None, ["none"]) else comma_separated(measure or [])
    space = SearchSpace.of(**settings)
    for choose in space.examples():
        check_settings(space.config(choose))
    return space


def listener_for(space: "SearchSpace", trials: int) -> "ProgressListener":
    """Return a listener for the trials: bars on a terminal, lines in a log."""
    from toosure.cli.tune_progress import TrialBars, TrialLog

    steps = space.config(lambda name, domain: domain.examples[0]).steps
    return TrialBars(trials, steps) if sys.stdout.isatty() else TrialLog(trials, steps)


def finish(result: "Tuning", out: Path) -> None:
    """Print the results, and exit with the code of the study."""
    typer.echo(summary(result))
    if result.best:
        console().print(table_of(result))
        typer.echo(f"`toosure report {out}` shows all of them")
    if result.stopped:
        typer.echo("Stopped; repeat the command to go on from the checkpoints.", err=True)
        raise typer.Exit(130)
    if not result.best:
        raise typer.Exit(1)


def summary(result: "Tuning") -> str:
    """Return how many trials ended how, and the reason of the last failure."""
    states = [trial.state for trial in result.trials]
    names = {"complete": "complete", "pruned": "pruned", "fail": "failed", "running": "not ended"}
    counts = [f"{states.count(s)} {name}" for s, name in names.items() if states.count(s)]
    failures = [t.message for t in result.trials if t.state == "fail" and t.message]
    reason = f" (the last: {failures[-1]})" if failures else ""
    return f"{len(result.trials)} trials: {', '.join(counts)}{reason}"


def table_of(result: "Tuning") -> "Table":
    """Lay out the Pareto front, or with one goal the best trials, as a table."""
    from rich.text import Text

    front = len(result.goals) > 1
    chosen = result.best if front else [t for t in result.trials if t.values]
    chosen = in_order(chosen, result.goals[0])[:MAX_ROWS]
    title = "Pareto front: no trial is better in all goals" if front else "The best trials"

    table = terminal_table(title=title)
    for name in ("trial", *(goal.quantity.heading for goal in result.goals)):
        table.add_column(Text(name), justify="right")
    table.add_column("settings")
    for trial in chosen:
        values = [
            format(goal.quantity.scale * value, goal.quantity.form)
            for goal, value in zip(result.goals, trial.values, strict=True)
        ]
        table.add_row(str(trial.number), *values, Text(differing_settings(trial, result.trials)))
    return table


def in_order(trials: "Sequence[Trial]", goal: "Goal") -> "list[Trial]":
    """Sort trials by a goal, the best first."""
    highest = goal.direction == "maximize"
    return sorted(trials, key=lambda trial: trial.values[0], reverse=highest)


def differing_settings(trial: "Trial", trials: "Sequence[Trial]") -> str:
    """Return the settings of a trial in which the trials differ."""
    given = [each.config.non_defaults for each in trials]
    keys = dict.fromkeys(key for settings in given for key in settings)
    differ = [key for key in keys if len({str(settings.get(key)) for settings in given}) > 1]
    own = {key: getattr(trial.config, key) for key in differ or keys}
    return "  ".join(f"--{key} {value}" for key, value in own.items())
