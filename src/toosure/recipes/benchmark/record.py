"""The scores of one finished run, and what paired comparisons need of each test image."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure import metrics
from toosure.config import RunConfig
from toosure.posthoc import Temperature
from toosure.recipes.benchmark.class_gaps import class_gap_spread
from toosure.recipes.benchmark.kept_rows import (
    calibrated_errors,
    control_numbers,
    corrupted_means,
    measuring_seconds,
    rows_along,
)
from toosure.recipes.benchmark.shift_scores import shift_summary
from toosure.runs import Run
from toosure.runs.environment import torch_version

CONFIDENCE_STEPS = 65535  # the confidence after a temperature is kept as a whole number of 16 bits
METRICS = (
    *("accuracy", "nll", "brier", "ece", "debiased_ece", "smece", "adaptive_ece", "classwise_ece"),
    *("mce", "aurc", "auroc_misclass", "auroc_ovr", "auroc_ovr_binned"),
)
SHARPNESS = "train/hessian_sharpness"
Scores = dict[str, float]
Examples = dict[str, np.ndarray]  # "confidence", "correct", "log_probability", ... -> (N,)


@dataclass
class Record:
    """What is kept of one run, or of a mixture of runs.

    A mixture has no `val`, no `temperature` and nothing after it where its members were validated
    on different images.
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
    sharpness: float | None = None  # largest eigenvalue of the Hessian, where it was measured
    alone: bool | None = None  # whether no other run shared the device; None: not known
    calibrated_ece: Scores | None = None  # of the test images, by calibrator; None: not kept
    rows: list[Scores] | None = None  # along training, where it was measured more than once
    corrupted: dict[str, Scores] | None = None  # by corruption, where published images were judged
    shifts: dict[str, Any] | None = None  # under corruptions and on unknown data: shift_scores.py
    control: Scores | None = None  # of the last row, where a controller steered: "rho", ...
    members: list[str] | None = None  # of a mixture: the names of its runs
    step: int | None = None  # of the predictions, where they are those of the best step

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
    def of_line(cls, text: str) -> "Record":
        """Read a line of `scores.jsonl`; raise ValueError where a word of it is not known here."""
        values = json.loads(text)
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
    """Return the predictions that count: the network's, or those of its one average of weights.

    Of bSAM with `samples` they are those of the samples, of a run that keeps its `best` weights or
    measures `best` those of its best step.
    """
    if run.config.get("best") or "best" in run.config.get("measure", ()):
        return run.path / "best.npz"
    average = run.config.get("average")
    name = str(average).partition(":")[0] if average else ""
    optimizer = str(run.config.get("optimizer", ""))
    if not name and optimizer.startswith("bsam:") and "samples=" in optimizer:
        name = "bsam"
    return run.path / (f"predictions_{name}.npz" if name else "predictions.npz")


def read_split(run: Run, split: str) -> tuple[Tensor, Tensor]:
    """Return logits and labels of one split at the end of a run."""
    with np.load(predictions_file(run), allow_pickle=False) as arrays:
        logits = torch.from_numpy(arrays[f"{split}_logits"]).double()
        return logits, torch.from_numpy(arrays[f"{split}_labels"])


def predicted_step(run: Run) -> int | None:
    """Return the step of the predictions that count; None for the last."""
    with np.load(predictions_file(run), allow_pickle=False) as arrays:
        return int(arrays["step"]) if "step" in arrays.files else None


def record_of(run: Run) -> Record:
    """Score a run by the predictions that it saved at its end."""
    val = read_split(run, "val")
    logits, labels = read_split(run, "test")
    temperature = Temperature().fit_quietly(*val)
    sharpness = run.last.get(SHARPNESS)

    return Record(
        name=run.name,
        config=RunConfig.of(run.config),
        seconds=float(run.last["seconds"]),
        seconds_measuring=measuring_seconds(run),
        temperature=float(temperature.temperature),
        test=benchmark_scores(logits, labels),
        val=benchmark_scores(*val),
        test_after_temperature=benchmark_scores(temperature(logits), labels),
        status=run.status,
        device=run.environment.get("device"),
        torch=torch_version(run.environment),
        commit=run.environment.get("commit"),
        sharpness=None if sharpness is None else float(sharpness),
        alone=ran_alone(run),
        calibrated_ece=calibrated_errors(val, (logits, labels)),
        rows=rows_along(run),
        corrupted=corrupted_means(run),
        shifts=shift_summary(run),
        control=control_numbers(run),
        step=predicted_step(run),
    )


def ran_alone(run: Run) -> bool | None:
    """Whether a run had its device for itself, by the command it recorded; None: not known."""
    command = str(run.environment.get("command", ""))
    workers = re.search(r"--workers[ =](\d+)", command)
    if workers:
        return int(workers[1]) == 1
    return True if " reproduce " in command else None


def examples_of(run: Run) -> Examples:
    """Return what paired comparisons need of each test image."""
    temperature = Temperature().fit_quietly(*read_split(run, "val"))
    return example_arrays(*read_split(run, "test"), temperature)


def example_arrays(logits: Tensor, labels: Tensor, temperature: Temperature | None) -> Examples:
    """Return the same of logits; nothing after a temperature where there is none."""
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
