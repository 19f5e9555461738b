"""Rows as metrics of an MLflow run, and reliability diagrams as its artefacts."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from toosure.figures import Bins
from toosure.integrations.diagram_image import diagram_image
from toosure.integrations.row_sender import PREFIX, Names, RowSender

if TYPE_CHECKING:
    from mlflow import MlflowClient

REFUSED = r"[^\w/. -]"  # MLflow refuses brackets, @ and their kin; a colon only on Windows
MAX_METRICS = 1000  # in one call


def rows_to(
    client: "MlflowClient",
    run_id: str,
    run: str | Path | None = None,
    *,
    prefix: str = PREFIX,
    strict: bool = False,
) -> "MlflowSender":
    """Return a sender of rows to a run of MLflow, for `Watch(notify=...)`.

    A row is one call. Names that MLflow refuses are changed: "train/slack 4.1 (i)" becomes
    "train/slack 4.1 i". The time of a metric is the start of the MLflow run plus the row's own
    seconds. `run` is the run folder, for diagrams (artefacts in `reliability/`).

        with mlflow.rows_to(MlflowClient(), mlflow_run.info.run_id, run="runs/mine") as rows:
            with Watch(..., run="runs/mine", notify=rows) as watch:
    """
    return MlflowSender(client, run_id, run, prefix, strict)


class MlflowSender(RowSender):
    """Send rows to a run of MLflow."""

    def __init__(
        self,
        client: "MlflowClient",
        run_id: str,
        run: str | Path | None,
        prefix: str,
        strict: bool,
    ) -> None:
        super().__init__(run, prefix, strict)
        self.client = client
        self.run_id = run_id
        self.names = Names(REFUSED)
        self.started = client.get_run(run_id).info.start_time if self.active else 0

    def send_numbers(self, step: int, numbers: dict[str, float]) -> None:
        from mlflow.entities import Metric

        seconds = numbers.get("seconds", 0.0)
        time = self.started + math.floor(1000 * seconds)
        metrics = [
            Metric(self.prefix + self.names[key], value, time, step)
            for key, value in numbers.items()
        ]
        for first in range(0, len(metrics), MAX_METRICS):
            self.client.log_batch(self.run_id, metrics[first : first + MAX_METRICS])

    def send_diagram(self, step: int, split: str, bins: Bins) -> None:
        image = diagram_image(bins, f"{split}, step {step}")
        self.client.log_image(self.run_id, image, f"reliability/{split}_step_{step:06d}.png")
