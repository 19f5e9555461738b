"""`toosure train`: one run, or the product of everything given several values; `methods`."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from toosure.cli.app import app, fail
from toosure.cli.several import Several

Texts = list[str] | None
WHEN = ("every", "at", "budget")  # three ways to space measurements, of which one counts


@app.command(cls=Several)
def train(
    data: Annotated[Texts, typer.Option(help="digits, cifar10:train=5000, ...")] = None,
    shift: Annotated[
        Texts, typer.Option(help="Predict the test set corrupted, too: fog:3, or none.")
    ] = None,
    model: Annotated[Texts, typer.Option(help="mlp, resnet20, package.module:factory")] = None,
    optimizer: Annotated[Texts, typer.Option(help="sgd:lr=0.1, sam:base=adamw,rho=0.1")] = None,
    loss: Annotated[Texts, typer.Option(help="The criterion: ce, mse, ...")] = None,
    objective: Annotated[Texts, typer.Option(help="What wraps the criterion, or none.")] = None,
    schedule: Annotated[Texts, typer.Option(help="constant, step, cosine:warmup=100")] = None,
    steps: Annotated[Texts, typer.Option(help="How many steps. [2000]")] = None,
    batch: Annotated[Texts, typer.Option(help="Examples a step, or full. [128]")] = None,
    seed: Annotated[Texts, typer.Option(help="0, 0..2 or 0,5..7")] = None,
    clip: Annotated[Texts, typer.Option(help="Largest norm of a gradient, or none.")] = None,
    precision: Annotated[Texts, typer.Option(help="float32, float64, bf16, fp16.")] = None,
    measure: Annotated[
        Texts, typer.Option(help="Beside metrics and margins: gn_sharpness, ... or none.")
    ] = None,
    eps: Annotated[float | None, typer.Option(help="Radius of the certificate.")] = None,
    every: Annotated[int | None, typer.Option(help="Measure every so many steps. [20]")] = None,
    at: Annotated[str | None, typer.Option(help="Measure at steps: 1,2,4,...")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Measure as often as this share of the time allows.")
    ] = None,
    config: Annotated[
        list[Path] | None, typer.Option(help="Run what these files or run folders hold.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    data_root: Annotated[Path, typer.Option(help="Where data sets lie.")] = Path("data"),
    download: Annotated[bool, typer.Option(help="Fetch data from the official place.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1")] = None,
    compile: Annotated[bool, typer.Option(help="Use torch.compile.")] = False,
    graph: Annotated[bool, typer.Option(help="Replay each step as a CUDA graph.")] = False,
    checkpoint: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 30.0,
    threads: Annotated[int | None, typer.Option(help="Threads of a run on the CPU.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that run side by side.")] = 1,
    on: Annotated[
        str | None, typer.Option(help="A Ray cluster: ray, host:port, ray://host:port")
    ] = None,
    cpus_per_run: Annotated[
        float | None, typer.Option(help="CPUs a run takes, with --on. [1]")
    ] = None,
    gpus_per_run: Annotated[
        float | None, typer.Option(help="GPUs a run takes, with --on. [0]")
    ] = None,
) -> None:
    """Train and watch. Every option of what to do takes several values; their product is the sweep.

    Repeating a command finishes what is missing. Ctrl-C writes a checkpoint first.
    """
    from toosure.cli.progress import show_for
    from toosure.sweep import Cluster, sweep
    from toosure.train import Means

    sys.path.insert(0, "")  # so that package.module:factory is found where one stands
    said: dict[str, Any] = {
        "data": with_shift(data, shift), "model": model, "optimizer": optimizer,
        "loss": loss, "schedule": schedule,
        "objective": objective and [None if o == "none" else o for o in objective],
        "steps": steps and integers(steps), "seed": seed and integers(seed),
        "batch": batch and [None if b == "full" else whole("batch", b) for b in batch],
        "clip": clip and [None if c == "none" else number("clip", c) for c in clip],
        "precision": precision, "eps": one(eps), "every": one(every),
        "budget": one(budget), "at": one(at),
        "measure": measure and [[] if measure == ["none"] else split(measure)],
    }  # fmt: skip
    try:
        configs = configs_of({name: v for name, v in said.items() if v}, config or [])
        means = Means(device, data_root, download, compile, graph, checkpoint, threads)
        if on is None and (cpus_per_run, gpus_per_run) != (None, None):
            raise ValueError("--cpus-per-run and --gpus-per-run: only with --on, a Ray cluster")
        cpus = 1.0 if cpus_per_run is None else cpus_per_run
        cluster = None if on is None else Cluster(on, cpus, gpus_per_run or 0.0)
        show = show_for(configs, at_once=workers > 1 or cluster is not None)
        done = sweep(configs, out, means, show, workers, cluster)
        show.close()
    except ValueError as error:
        fail(str(error))
    if done.stopped:
        typer.echo("Stopped; repeat the command to go on from the checkpoint.", err=True)
        raise typer.Exit(130)
    if done.failures:
        raise typer.Exit(1)


def with_shift(data: Texts, shift: Texts) -> Texts:
    """Add each corruption to each data word: cifar10 and fog:3 make cifar10:shift=fog:3."""
    if not shift:
        return data
    if not data:
        fail("--shift corrupts the test set of --data: name one")
    return [f"{d}{',' if ':' in d else ':'}shift={s}" for d in data for s in shift]


def one(value: Any) -> list[Any] | None:
    return None if value is None else [value]


def configs_of(said: dict[str, Any], files: list[Path]) -> list[Any]:
    """Make the runs: the product of what was said, for each config file given."""
    from dataclasses import asdict

    from toosure.config import RunConfig, sweep_of

    when = [name for name in WHEN if name in said]
    if len(when) > 1:
        raise ValueError("--every, --at or --budget: give one of them")
    made: dict[RunConfig, None] = {}
    for base in [asdict(RunConfig.read(file)) for file in files] or [{}]:
        kept = {n: [v] for n, v in base.items() if not (when and n in WHEN)}
        values = {**kept, **said}
        if "at" not in said:
            made |= dict.fromkeys(sweep_of(**values))
            continue
        for one in sweep_of(**{n: v for n, v in values.items() if n != "at"}):
            at = steps_at(said["at"][0], one.steps)  # of this run: they may differ in length
            made[RunConfig.of({**asdict(one), "at": at})] = None
    return list(made)


def integers(texts: list[str]) -> list[int]:
    """Write out 0..2 and 5 as 0, 1, 2, 5."""
    from toosure.words import expand

    try:
        return [n for text in texts for n in expand(text)]
    except ValueError as error:
        fail(str(error))


def number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        fail(f"{name} must be a number or none; got {text!r}")


def whole(name: str, text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        fail(f"{name} must be a whole number or full; got {text!r}")
    return int(text)


def split(texts: list[str]) -> list[str]:
    return [name for text in texts for name in text.split(",") if name]


def steps_at(text: str, steps: int) -> list[int]:
    """Read steps such as 0,5,10; dots continue a product or a sum up to the last step.

    >>> steps_at("1,2,4,...", 20), steps_at("0,5,...", 20), steps_at("1,2,4,...", 3)
    ([1, 2, 4, 8, 16], [0, 5, 10, 15, 20], [1, 2])
    """
    pieces = [piece.strip() for piece in text.split(",")]
    goes_on = pieces[-1] == "..."
    numbers = pieces[:-1] if goes_on else pieces
    if not numbers or not all(re.fullmatch(r"\d+", piece) for piece in numbers):
        raise ValueError(f"--at takes steps such as 0,10,100 or 1,2,4,...; got {text!r}")
    found = [int(piece) for piece in numbers]
    if not goes_on:
        return found
    if len(found) < 2 or found[-1] <= found[-2]:
        raise ValueError(f"--at needs two or more rising steps before the dots; got {text!r}")
    factor = found[-1] / found[-2] if len(found) > 2 and found[-2] * found[-2] == (
        found[-1] * found[-3]
    ) else None  # fmt: skip
    gap = found[-1] - found[-2]
    while (step := round(found[-1] * factor) if factor else found[-1] + gap) <= steps:
        found.append(step)
    return [step for step in found if step <= steps]


@app.command()
def methods(
    kind: Annotated[str | None, typer.Argument(help="optimizer, loss, data, model, ...")] = None,
) -> None:
    """List the methods, their settings and papers: every word `train` understands."""
    from toosure.words import TABLES
    from toosure.words import methods as of_kind

    try:
        for each in [kind] if kind else list(TABLES):
            found = list(of_kind(each))
            if found:
                typer.echo(f"{each}\n" + "\n".join(map(described, found)) + "\n")
    except ValueError as error:
        fail(str(error))


def described(method: Any) -> str:
    """Return a method's name, summary, settings and reference as indented lines."""
    lines = [f"  {method.name}  {method.summary}"]
    if method.settings:
        settings = ", ".join(map(str, method.settings.values()))
        more = f", and those of {method.passes_to}" if method.passes_to else ""
        lines.append(f"      {settings}{more}")
    if method.reference:
        lines.append(f"      {method.reference}")
    return "\n".join(lines)
