"""`toosure calibrate RUN --method laplace`: a Gaussian over the head of a run's network."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toosure.cli.evaluation_tables import print_files
from toosure.cli.file_options import DATA_ROOT, FileOptions, predictions_file
from toosure.cli.spinner import Spinner

if TYPE_CHECKING:
    from toosure.evaluate import Evaluation


def calibrate_by_laplace(
    run: Path,
    data_root: Path | None,
    device: str | None,
    as_json: bool,
    bins: int,
    ci: float,
    seed: int,
) -> None:
    """Fit Laplace to a run, write its predictions, and judge both on the test set."""
    from toosure.train import Runtime
    from toosure.train.laplace import FILE, laplace_of_run

    if not run.is_dir():
        raise ValueError(f"laplace needs the folder of a run, with its network; got {run}")
    plain = predictions_file(run)
    with Spinner("fitting the head") as spinner:
        laplace = laplace_of_run(run, Runtime(device, data_root or DATA_ROOT))
        spinner.update("measuring")
        before, after = (
            judged(path, name, bins, ci, seed)
            for path, name in ((plain, "as trained"), (run / FILE, "laplace"))
        )

    typer.echo(f"predictions: {run / FILE}", err=True)
    assert laplace.precision is not None
    if as_json:
        sides = {"before": before.as_json(), "after": after.as_json()}
        print(json.dumps({**sides, "precision": laplace.precision}, allow_nan=False))
        return
    typer.echo(f"Prior precision {laplace.precision:.4g}, by the marginal likelihood.\n")
    print_files([before, after], ["accuracy", "nll", "ece", "smece", "brier"])


def judged(path: Path, name: str, bins: int, ci: float, seed: int) -> "Evaluation":
    """Evaluate the test predictions of a file."""
    from toosure.evaluate import evaluate

    predictions = FileOptions().read(path, "test")
    predictions = replace(predictions, source=name)
    return evaluate(predictions, bins=bins, level=ci, seed=seed)
