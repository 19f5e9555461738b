"""`toosure demo`: train three ways on a few noisy digits, report, and say what helped."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.report import report
from toosure.cli.tables import console, terminal_table
from toosure.cli.train import exit_as_ended, run_sweep

if TYPE_CHECKING:
    from toosure.demo import HeldOutScores

CONCLUSION = "conclusion.txt"  # beside the runs: the first sentence of their report


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Where runs and report go.")] = Path("."),
    steps: Annotated[int, typer.Option(min=2, help="Steps of a run.")] = 500,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds each way is trained with.")] = 5,
    workers: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
) -> None:
    """Show in a minute what it is about: too sure, and what helps. Needs no data.

    A network learns digits of which three in ten are mislabelled, by SGD, by CSAM and by mixup; a
    temperature is fitted to the first. Repeating the command trains nothing twice.
    """
    from toosure.demo import CHOSEN, METHODS, conclusion, demo_configs, demo_scores
    from toosure.train import Runtime
    from toosure.verdicts import plural

    out = folder / "runs" / "demo"
    configs = demo_configs(steps, seeds)
    each = f"{seeds} {plural(seeds, 'seed')} each"
    typer.echo(f"400 digits, three in ten mislabelled; {', '.join(METHODS)}; {each}.\n")
    try:
        # More threads would only wait for each other on such small tensors.
        runtime = Runtime("cpu", threads=1)
        every = [config for of in configs.values() for config in of]
        result = run_sweep(every, out, runtime, workers, None)
    except ValueError as error:
        fail(str(error))
    if result.stopped or result.failures:
        exit_as_ended(result)

    scores = demo_scores(out, configs)
    sentence = conclusion(scores)
    (out / CONCLUSION).write_text(f"{sentence}\n", encoding="utf-8")

    show_scores(scores)
    typer.echo(f"\n{CHOSEN}\n")
    report(out, folder / "demo_report.html")
    typer.echo(f"runs: {out}\n\n{sentence}")


def show_scores(scores: "Mapping[str, HeldOutScores]") -> None:
    """Print each way with its test numbers, mean ± standard deviation over seeds."""
    from toosure.recipes.series import mean_std_text

    table = terminal_table(title="Test digits")
    for name in ("", "right %", "sure %", "ECE points"):
        table.add_column(name, justify="right" if name else "left")
    for name, each in scores.items():
        columns = (each.accuracy, each.confidence, each.ece)
        table.add_row(name, *(mean_std_text([100 * v for v in c], ".1f") for c in columns))
    console().print("", table)
