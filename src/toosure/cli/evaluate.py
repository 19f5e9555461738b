"""`toosure evaluate`: how far the probabilities in a file can be trusted."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail

if TYPE_CHECKING:
    from toosure.evaluate import Evaluation
    from toosure.predictions import Predictions


class Kind(StrEnum):
    """What a file holds."""

    logits = "logits"
    probs = "probs"
    confidence = "confidence"


class Edge(StrEnum):
    """Which edge a bin includes."""

    right = "right"
    left = "left"


@app.command()
def evaluate(
    file: Annotated[
        Path, typer.Argument(help="Predictions (.npz, .pt, .csv, .parquet), or a run folder.")
    ],
    kind: Annotated[
        Kind | None, typer.Option(help="What the file holds, where its names do not say it.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the binned metrics.")] = 15,
    edge: Annotated[Edge, typer.Option(help="Bins are (a, b] (right) or [a, b) (left).")] = (
        Edge.right
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with figures here.")] = None,
    ci: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    split: Annotated[
        str | None, typer.Option(help="Read the arrays test_logits, test_labels for 'test'.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the bootstrap.")] = 0,
    shift: Annotated[
        str | None, typer.Option(help="Of a run: predict its test set corrupted, as fog:3.")
    ] = None,
    data_root: Annotated[Path, typer.Option(help="With --shift: where data lie.")] = Path("data"),
    device: Annotated[str | None, typer.Option(help="With --shift: cpu, cuda.")] = None,
) -> None:
    """Say how far the probabilities in FILE can be trusted, with intervals.

    A run folder is judged on the test set, or the split named.
    """
    from toosure.evaluate import evaluate as measure
    from toosure.predictions import read_predictions

    try:
        if shift:
            predictions = of_run(file, shift, data_root, device)
        else:
            if file.is_dir():
                file, split = in_folder(file), split or "test"
            predictions = read_predictions(file, kind.value if kind else None, split)

        result = measure(predictions, bins=bins, edge=edge.value, level=ci, seed=seed)
        if html:
            write_page(result, html)
    except ValueError as error:
        fail(str(error))

    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
    else:
        print_table(result)
    if html:
        typer.echo(f"page: {html}", err=True)


def in_folder(run: Path) -> Path:
    """Return where a run keeps its predictions, or say that it has none."""
    path = run / "predictions.npz"
    if not path.is_file():
        raise ValueError(
            f"{run} holds no predictions.npz: name the folder of one run that ended. A loop of "
            "your own leaves one if its watch has validation data and ends with `with Watch(...)` "
            "or `watch.finish()`"
        )
    return path


def of_run(run: Path, shift: str, data_root: Path, device: str | None) -> "Predictions":
    """Predict the test set of a run under a corruption, with the weights of its checkpoint."""
    from dataclasses import replace

    from toosure.data.corruptions import Shift
    from toosure.predictions import from_logits
    from toosure.train import Runtime
    from toosure.train.predict import predict_shifted
    from toosure.words.values import read

    if not run.is_dir():
        raise ValueError(f"--shift needs the folder of a run; got {run}")
    try:
        corruption = read(shift, Shift)
    except ValueError as error:
        raise ValueError(f"--shift {error}") from error
    logits, labels = predict_shifted(run, corruption, Runtime(device, data_root))
    return replace(from_logits(logits, labels), source=f"{run.name} under {shift}")


def write_page(result: "Evaluation", path: Path) -> None:
    """Write the page of an evaluation, or say why it cannot be written."""
    from toosure.page.evaluation import evaluation_page

    try:
        path.write_text(evaluation_page(result), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror})") from error


def print_table(result: "Evaluation") -> None:
    """Print the verdict, then each metric with its interval."""
    from rich.console import Console
    from rich.table import Table

    from toosure.evaluate.verdict import verdict
    from toosure.page.html import printed
    from toosure.quantities import evaluation_groups

    _, sentence, reasons = verdict(result)
    typer.echo("\n".join([f"{sentence}.", *reasons, ""]))

    table = Table("metric", box=None, pad_edge=False, header_style="dim")
    for heading in ("value", "low", "high"):
        table.add_column(heading, justify="right")
    for names in evaluation_groups().values():
        for name in (name for name in names if name in result.metrics):
            table.add_row(name, *(printed(each, ".4f") for each in result.metrics[name]))
        table.add_section()
    Console().print(table)

    edges = "(a, b]" if result.edge == "right" else "[a, b)"
    typer.echo(
        f"\nn = {result.n:,}, {result.bins} bins {edges}, {100 * result.level:g} % intervals"
    )
    for line in result.omissions():
        typer.echo(line)
