"""Scores of one run, and per-image values for paired comparisons.

The values of an image are its confidence, its correctness and the log-probability of its label.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure import metrics
from toosure.config import RunConfig
from toosure.posthoc import Temperature
from toosure.recipes.benchmark.class_gaps import class_gap_spread
from toosure.recipes.benchmark.saved_rows import (
    calibrated_errors,
    control_numbers,
    corrupted_means,
    measuring_seconds,
    rows_along,
)
from toosure.recipes.benchmark.shift_scores import shift_summary
from toosure.runs import Run
from toosure.runs.environment import torch_version

CONFIDENCE_STEPS = 65535  # the confidence after a temperature is saved as 16 bits
METRICS = (
    *("accuracy", "nll", "brier", "ece", "debiased_ece", "smece", "adaptive_ece", "classwise_ece"),
    *("mce", "aurc", "auroc_misclass", "auroc_ovr", "auroc_ovr_binned"),
)
SHARPNESS = "train/hessian_sharpness"
Scores = dict[str, float]
Predictions = tuple[Tensor, Tensor]  # logits (N, C) and labels (N,)
Examples = dict[str, np.ndarray]  # "confidence", "correct", "log_probability", ... -> (N,)


@dataclass
class Record:
    """What is saved of one run, or of a mixture of runs.

    A mixture has no `val`, no `temperature` and no scores after it if its members were validated on
    different images.
    """

    name: str
    config: RunConfig
    seconds: float
    seconds_measuring: float
    temperature: float | None
    test: Scores
    val: Scores
    test_after_temperature: Scores
    status: str = "complete"
    device: str | None = None
    torch: str | None = None
    commit: str | None = None
    sharpness: float | None = None  # largest eigenvalue of the Hessian, if measured
    alone: bool | None = None  # whether it had the device for itself; None if unknown
    calibrated_ece: Scores | None = None  # of the test images, by calibrator
    rows: list[Scores] | None = None  # along training, if measured more than once
    corrupted: dict[str, Scores] | None = None  # by corruption of ImageNet-C, if judged
    shifts: dict[str, Any] | None = None  # under corruptions and on unknown data: shift_scores.py
    control: Scores | None = None  # of the last row of a steered run: "rho", ...
    members: list[str] | None = None  # of a mixture: the names of its runs
    step: int | None = None  # of the predictions, if they are of the best step

    @property
    def data(self) -> str:
        return self.config.data.partition(":")[0]

    @property
    def training_seconds(self) -> float:
        return self.seconds - self.seconds_measuring

    def line(self) -> str:
        """Return the record as a line of `scores.jsonl`."""
        return json.dumps(asdict(self))

    @classmethod
    def of_values(cls, values: dict[str, Any]) -> "Record":
        """Return the record of a line; raise ValueError if a word of its config is unknown."""
        return cls(**{**values, "config": RunConfig.of(values["config"])})


# -- scoring --------------------------------------------------------------------------------------


def benchmark_scores(logits: Tensor, labels: Tensor) -> Scores:
    """Return every score of one split, as shares of 1."""
    confidence, _ = metrics.top_label(logits, labels)
    scores = {name: float(getattr(metrics, name)(logits, labels)) for name in METRICS}
    more = {
        "confidence": float(confidence.mean()),
        "class_gap_spread": class_gap_spread(logits, labels),
    }
    return scores | more


def predictions_file(run: Run) -> Path:
    """Return the file to score: predictions of the network, its weight average, or its best step.

    A run that keeps its `best` weights or measures `best` is scored at its best step, and bSAM with
    `samples` by its samples.
    """
    if run.config.get("best") or "best" in run.config.get("measure", ()):
        return run.path / "best.npz"
    average = run.config.get("average")
    name = str(average).partition(":")[0] if average else ""
    optimizer = str(run.config.get("optimizer", ""))
    if not name and optimizer.startswith("bsam:") and "samples=" in optimizer:
        name = "bsam"
    return run.path / (f"predictions_{name}.npz" if name else "predictions.npz")


def read_split(run: Run, split: str) -> Predictions:
    """Return logits and labels of one split at the end of a run."""
    with np.load(predictions_file(run), allow_pickle=False) as arrays:
        logits = torch.from_numpy(arrays[f"{split}_logits"]).double()
        return logits, torch.from_numpy(arrays[f"{split}_labels"])


def predicted_step(run: Run) -> int | None:
    """Return the step of the predictions, or None if it is the last."""
    with np.load(predictions_file(run), allow_pickle=False) as arrays:
        return int(arrays["step"]) if "step" in arrays.files else None


def score_run(run: Run) -> tuple[Record, Examples]:
    """Score a run by the predictions that it saved at its end."""
    test = read_split(run, "test")
    val = read_split(run, "val")
    record, examples = score([run], run.name, RunConfig.of(run.config), test, val)
    sharpness = run.last.get(SHARPNESS)

    record = replace(
        record,
        sharpness=None if sharpness is None else float(sharpness),
        rows=rows_along(run),
        corrupted=corrupted_means(run),
        shifts=shift_summary(run),
        control=control_numbers(run),
        step=predicted_step(run),
    )
    return record, examples


def score(
    runs: Sequence[Run], name: str, config: RunConfig, test: Predictions, val: Predictions | None
) -> tuple[Record, Examples]:
    """Score predictions that one run made, or several together.

    Without predictions on validation images there is no temperature, and no scores after it.
    """
    logits, labels = test
    temperature = None if val is None else Temperature().fit_quietly(*val)
    commits = {commit for run in runs if (commit := run.environment.get("commit"))}

    record = Record(
        name=name,
        config=config,
        seconds=sum(float(run.last["seconds"]) for run in runs),
        seconds_measuring=sum(measuring_seconds(run) for run in runs),
        temperature=None if temperature is None else float(temperature.temperature),
        test=benchmark_scores(logits, labels),
        val={} if val is None else benchmark_scores(*val),
        test_after_temperature=(
            {} if temperature is None else benchmark_scores(temperature(logits), labels)
        ),
        device=runs[0].environment.get("device"),
        torch=torch_version(runs[0].environment),
        commit=", ".join(sorted(commits)) or None,
        alone=all_ran_alone(runs),
        calibrated_ece=None if val is None else calibrated_errors(val, test),
    )
    return record, example_arrays(logits, labels, temperature)


def ran_alone(run: Run) -> bool | None:
    """Whether a run had the device for itself, by its recorded command; None if unknown."""
    command = str(run.environment.get("command", ""))
    workers = re.search(r"--workers[ =](\d+)", command)
    if workers:
        return int(workers[1]) == 1
    return True if " reproduce " in command else None


def all_ran_alone(runs: Sequence[Run]) -> bool | None:
    """Whether every run had the device for itself; None if that is unknown of one."""
    known = [ran_alone(run) for run in runs]
    if False in known:
        return False
    return None if None in known else True


def example_arrays(logits: Tensor, labels: Tensor, temperature: Temperature | None) -> Examples:
    """Return per-image confidence, correctness and log-probability, for paired comparisons."""
    confidence, correct = metrics.top_label(logits, labels)
    log_probability = logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)
    examples = {
        "confidence": confidence.float().numpy(),
        "correct": correct.bool().numpy(),
        "log_probability": log_probability.float().numpy(),
    }
    if temperature is not None:
        after, _ = metrics.top_label(temperature(logits), labels)
        in_steps = np.round(CONFIDENCE_STEPS * after.double().numpy())
        examples["confidence_after"] = in_steps.astype(np.uint16)
    return examples
