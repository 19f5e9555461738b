"""`toosure train`: one run, or one for each combination of values."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.multi_value import MultiValueCommand
from toosure.cli.option_values import (
    Texts,
    comma_separated,
    in_list,
    integers,
    number,
    read_each,
    steps_at,
    whole_number,
)
from toosure.cli.output import ignore_broken_pipe
from toosure.cli.run_options import (
    ClusterAddress,
    CpusPerRun,
    Data,
    DataRoot,
    Device,
    Download,
    GpusPerRun,
    Graph,
    Objective,
    Schedule,
    Threads,
)
from toosure.cli.shifts import plan_of_options

if TYPE_CHECKING:
    from toosure.config import RunConfig
    from toosure.sweep import Cluster, Sweep
    from toosure.train import Runtime

Values = Mapping[str, Sequence[object]]  # the values to try of each setting
INTERVALS = ("every", "at", "budget")  # three ways to space measurements; only one may be given


# -- the command ------------------------------------------------------------------------------


@app.command(cls=MultiValueCommand)
def train(
    data: Data = None,
    shift: Annotated[
        Texts,
        typer.Option(
            help="Predict the test set corrupted, too: fog:3, all, all:images=2000, or none."
        ),
    ] = None,
    ood: Annotated[
        Texts, typer.Option(help="With --shift all: unknown data, cifar100, noise, NAME=FILE.npz.")
    ] = None,
    model: Annotated[
        Texts, typer.Option(help="Network: mlp, resnet20, package.module:factory. [mlp]")
    ] = None,
    optimizer: Annotated[
        Texts, typer.Option(help="sgd, sam:base=adamw,rho=0.1, ... [sgd:lr=0.1]")
    ] = None,
    loss: Annotated[Texts, typer.Option(help="The criterion: ce, mse, ... [ce]")] = None,
    objective: Objective = None,
    schedule: Schedule = None,
    steps: Annotated[Texts, typer.Option(help="How many steps. [2000]")] = None,
    batch: Annotated[Texts, typer.Option(help="Examples per step, or full. [128]")] = None,
    seed: Annotated[
        Texts, typer.Option(help="Of the start and the batches: 0, 0..2 or 0,5..7. [0]")
    ] = None,
    clip: Annotated[Texts, typer.Option(help="Largest norm of a gradient. [none]")] = None,
    average: Annotated[
        Texts,
        typer.Option(help="Also average the weights: ema:decay=0.999, swa, swag, ema+swag. [none]"),
    ] = None,
    control: Annotated[
        Texts, typer.Option(help="Steer rho or gamma: radius, radius:actuator=both. [none]")
    ] = None,
    best: Annotated[
        Texts, typer.Option(help="Keep the best weights by validation: refinement or nll. [none]")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="With --best: end after so many rows without a better one.")
    ] = None,
    min_delta: Annotated[
        float | None,
        typer.Option(help="With --patience: better is lower by more than this. [0]"),
    ] = None,
    precision: Annotated[
        Texts, typer.Option(help="float32, float64, bf16, fp16. [float32]")
    ] = None,
    measure: Annotated[
        Texts, typer.Option(help="Beside metrics and margins: trace, ... or none. [gn_sharpness]")
    ] = None,
    eps: Annotated[
        float | None, typer.Option(help="Radius for --measure certificate. [0.01]")
    ] = None,
    curvature_examples: Annotated[
        int | None, typer.Option(help="Measure curvature on so many examples of a split. [all]")
    ] = None,
    curvature_loss: Annotated[
        str | None, typer.Option(help="Measure curvature of this loss. [the training loss]")
    ] = None,
    every: Annotated[int | None, typer.Option(help="Measure every so many steps. [20]")] = None,
    at: Annotated[
        str | None, typer.Option(help="Measure at these steps: 0,10,100 or 1,2,4,...")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Measure as often as this share of the time allows: 0.05.")
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(help="Take the settings from a config.json or a run folder."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run folders go, or s3://...")] = Path("runs"),
    data_root: DataRoot = Path("data"),
    download: Download = False,
    device: Device = None,
    compile: Annotated[bool, typer.Option(help="Use torch.compile.")] = False,
    graph: Graph = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="With torchrun: the numbers of one process; slower.")
    ] = False,
    sync_batchnorm: Annotated[
        bool,
        typer.Option("--sync-batchnorm", help="With torchrun: BatchNorm sees the whole batch."),
    ] = False,
    checkpoint: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 30.0,
    threads: Threads = None,
    workers: Annotated[
        int, typer.Option(help="Runs side by side, each in a process of its own.")
    ] = 1,
    on: ClusterAddress = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
) -> None:
    """Train networks, and measure them on the way.

    Several values of an option make a sweep: one run for each combination.

    Repeating a command finishes what is missing. Ctrl-C writes a checkpoint first.
    """
    from toosure.train import Runtime

    sys.path.insert(0, "")  # package.module:factory is looked for in the current folder
    plan = plan_of_options(shift, ood)
    values: dict[str, Sequence[object] | None] = {
        "data": data if plan else with_shift(data, shift),
        "model": model,
        "optimizer": optimizer,
        "loss": loss,
        "schedule": schedule,
        "objective": read_each(objective, str, none="none"),
        "steps": steps and integers(steps),
        "seed": seed and integers(seed),
        "batch": read_each(batch, partial(whole_number, "batch"), none="full"),
        "clip": read_each(clip, partial(number, "clip"), none="none"),
        "average": read_each(average, str, none="none"),
        "control": read_each(control, str, none="none"),
        "best": read_each(best, str, none="none"),
        "patience": in_list(patience),
        "min_delta": in_list(min_delta),
        "precision": precision,
        "eps": in_list(eps),
        "curvature_examples": in_list(curvature_examples),
        "curvature_loss": in_list(curvature_loss),
        "every": in_list(every),
        "budget": in_list(budget),
        "at": in_list(at),
        "measure": measure and [[] if measure == ["none"] else comma_separated(measure)],
    }
    try:
        configs = configs_of({name: v for name, v in values.items() if v}, config or [])
        runtime = Runtime(
            device,
            data_root,
            download,
            compile,
            graph,
            checkpoint,
            threads,
            shifts=plan,
            exact=exact,
            sync_batchnorm=sync_batchnorm,
        )
        cluster = cluster_of(on, cpus_per_run, gpus_per_run)
        result = run_sweep(configs, out, runtime, workers, cluster)
    except ValueError as error:
        fail(str(error))
    exit_as_ended(result)


def run_sweep(
    configs: "list[RunConfig]",
    out: Path,
    runtime: "Runtime",
    workers: int,
    cluster: "Cluster | None",
) -> "Sweep":
    """Train the runs while their progress is shown."""
    from toosure.cli.progress import listener_for_runs
    from toosure.runs.files import check_folder
    from toosure.runs.storage import as_given, as_url, local_folder
    from toosure.sweep import sweep
    from toosure.train.check_settings import check_settings

    for config in configs:
        check_settings(config)
    check_folder(local_folder(out))
    ignore_broken_pipe(f"the training goes on, with its rows in {as_given(out)}")
    if as_url(out):
        typer.echo(f"runs are uploaded to {as_given(out)} from {local_folder(out)}")
    listener = listener_for_runs(configs, at_once=workers > 1 or cluster is not None)
    try:
        result = sweep(configs, out, runtime, listener, workers, cluster)
    except KeyboardInterrupt:
        typer.echo("Ended at once; repeat the command to go on from the last checkpoint.", err=True)
        raise typer.Exit(130) from None
    listener.close()
    return result


def cluster_of(on: str | None, cpus: float | None, gpus: float | None) -> "Cluster | None":
    """Return the Ray cluster to run on, if one is named."""
    from toosure.sweep import Cluster

    if on is not None:
        return Cluster(on, 1.0 if cpus is None else cpus, gpus or 0.0)
    if cpus is not None or gpus is not None:
        raise ValueError("--cpus-per-run and --gpus-per-run: only with --on, a Ray cluster")
    return None


def exit_as_ended(result: "Sweep") -> None:
    """End with code 130 if the sweep was stopped, and with 1 if a run failed."""
    if result.stopped:
        typer.echo("Stopped; repeat the command to go on from the checkpoint.", err=True)
        raise typer.Exit(130)
    if result.failures:
        raise typer.Exit(1)


# -- from options to runs -----------------------------------------------------------------------


def with_shift(data: Texts, shift: Texts) -> Texts:
    """Add each corruption to each data word: cifar10 and fog:3 make cifar10:shift=fog:3."""
    if not shift:
        return data
    if not data:
        fail("--shift corrupts the test set of --data: name one")
    return [f"{d}{',' if ':' in d else ':'}shift={s}" for d in data for s in shift]


def configs_of(values: Values, files: Sequence[Path]) -> "list[RunConfig]":
    """Make the runs: the product of the values, for each config file given."""
    from dataclasses import asdict

    from toosure.config import RunConfig, sweep_of

    intervals = [name for name in INTERVALS if name in values]
    if len(intervals) > 1:
        raise ValueError("--every, --at or --budget: give one of them")

    configs: dict[RunConfig, None] = {}  # each once, in order
    for base in [asdict(RunConfig.read(file)) for file in files] or [{}]:
        # A given interval replaces all three of the file.
        from_file = {n: [v] for n, v in base.items() if not (intervals and n in INTERVALS)}
        choices = {**from_file, **values}
        if "at" not in values:
            configs |= dict.fromkeys(sweep_of(**choices))
            continue

        # "1,2,4,..." is expanded for each run, because runs may differ in length.
        text = str(values["at"][0])
        for config in sweep_of(**{n: v for n, v in choices.items() if n != "at"}):
            at = steps_at(text, config.steps)
            configs[RunConfig.of({**asdict(config), "at": at})] = None
    return list(configs)
