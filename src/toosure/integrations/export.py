"""Finished runs to a tracker: every row and reliability diagram, by the same functions as live."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toosure.integrations import mlflow as to_mlflow
from toosure.integrations import tensorboard as to_tensorboard
from toosure.integrations import wandb as to_wandb
from toosure.runs import Run
from toosure.runs.files import check_folder
from toosure.runs.row_reader import Row

ENDED_WELL = ("complete", "ended")
MAX_PARAMETER = 500  # characters of a setting that all versions of MLflow accept


def export_to_tensorboard(runs: Sequence[Run], target: str = "") -> int:
    """Write runs to a folder of TensorBoard, each in its own subfolder; return the rows.

    Repeating it replaces what was written.
    """
    root = Path(target or "tensorboard")
    check_folder(root)
    for run in runs:
        with to_tensorboard.rows_to(root / run.id, run.path, prefix="", strict=True) as rows:
            send_all(rows, in_order(run))
    return sum(run.count for run in runs)


def export_to_wandb(runs: Sequence[Run], target: str = "") -> int:
    """Write runs to a project of W&B, each as a new run of it; return the rows.

    `WANDB_MODE=offline` writes them to the folder `wandb`, for `wandb sync`.
    """
    wandb = imported("wandb", "wandb")
    for run in runs:
        try:
            project = wandb.init(
                project=target or "toosure", name=run.name, config=run.config, reinit="create_new"
            )
        except wandb.Error as error:
            raise ValueError(f"W&B: {error} (WANDB_MODE=offline needs no account)") from error

        try:
            with to_wandb.rows_to(project, run.path, prefix="", strict=True) as rows:
                send_all(rows, in_order(run))
        finally:
            project.finish(exit_code=0 if run.status in ENDED_WELL else 1)
    return sum(run.count for run in runs)


def export_to_mlflow(runs: Sequence[Run], target: str = "") -> int:
    """Write runs to the experiment `toosure` of an MLflow server or file; return the rows.

    `target` is its tracking URI. Repeating it adds the rows that are new.
    """
    mlflow = imported("mlflow", "mlflow")
    uri = target or os.environ.get("MLFLOW_TRACKING_URI", "") or "sqlite:///mlflow.db"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("toosure")
        number = experiment.experiment_id if experiment else client.create_experiment("toosure")
        return sum(mlflow_run(client, number, run) for run in runs)
    except mlflow.MlflowException as error:
        raise ValueError(f"MLflow at {uri}: {error}") from error


def mlflow_run(client: Any, experiment: str, run: Run) -> int:
    """Send the rows of a run that MLflow does not have yet; return how many."""
    same = client.search_runs([experiment], f"tags.`toosure.run` = '{quoted(run.id)}'")
    done = int(same[0].data.tags.get("toosure.rows", 0)) if same else 0
    if not same or done > run.count:  # the run was begun again
        same = [new_mlflow_run(client, experiment, run)]
        done = 0

    number = same[0].info.run_id
    with to_mlflow.rows_to(client, number, run.path, prefix="", strict=True) as rows:
        send_all(rows, in_order(run)[done:])
    client.set_tag(number, "toosure.rows", str(run.count))
    if run.status != "running":
        client.set_terminated(number, "FINISHED" if run.status in ENDED_WELL else "FAILED")
    return run.count - done


def new_mlflow_run(client: Any, experiment: str, run: Run) -> Any:
    """Begin a run of MLflow with the config as its parameters."""
    first_file = run.path / "config.json"  # written when the run began
    began = int(1000 * (first_file if first_file.is_file() else run.path).stat().st_mtime)
    tags = {"toosure.run": run.id, "toosure.status": run.status}
    new = client.create_run(experiment, began, tags, run_name=run.name)
    for key, value in run.config.items():
        client.log_param(new.info.run_id, key, str(value)[:MAX_PARAMETER])
    return new


EXPORTS: dict[str, Callable[[Sequence[Run], str], int]] = {
    "tensorboard": export_to_tensorboard,
    "wandb": export_to_wandb,
    "mlflow": export_to_mlflow,
}


def send_all(send: Callable[[Row], None], rows: Sequence[Row]) -> None:
    for row in rows:
        send(row)


def in_order(run: Run) -> list[Row]:
    """Return the rows of a run by their steps."""
    return sorted(run.rows, key=lambda row: row["step"])


def quoted(name: str) -> str:
    """Escape a name for a filter of MLflow."""
    return name.replace("'", "\\'")


def imported(package: str, extra: str) -> Any:
    """Return a tracker's package; raise with a hint how to install it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise ValueError(
            f"an export to {package} needs its package: pip install 'toosure[{extra}]'"
        ) from error
