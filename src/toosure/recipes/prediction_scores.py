"""Test accuracy and calibration of the predictions that a run saved, and its training time."""

from typing import NamedTuple

import numpy as np
import torch

from toosure import metrics
from toosure.runs import Run

BINS = 15


class Scores(NamedTuple):
    """Accuracy and calibration errors of test predictions, as shares of 1."""

    accuracy: float
    ece: float
    mce: float
    adaptive_ece: float
    classwise_ece: float
    nll: float
    step: int


def read_scores(run: Run, file: str = "best.npz") -> Scores | None:
    """Score the saved test predictions of a run; None where it saved none.

    `best.npz` holds those of its best step, `predictions.npz` those of its last.
    """
    try:
        with np.load(run.path / file, allow_pickle=False) as arrays:
            logits = torch.from_numpy(arrays["test_logits"])
            labels = torch.from_numpy(arrays["test_labels"])
            step = int(arrays["step"]) if "step" in arrays.files else int(run.last["step"])
    except (OSError, KeyError):
        return None

    return Scores(
        accuracy=float(metrics.accuracy(logits, labels)),
        ece=float(metrics.ece(logits, labels, BINS)),
        mce=float(metrics.mce(logits, labels, BINS)),
        adaptive_ece=float(metrics.adaptive_ece(logits, labels, BINS)),
        classwise_ece=float(metrics.classwise_ece(logits, labels, BINS)),
        nll=float(metrics.nll(logits, labels)),
        step=step,
    )


def scores_of_runs(runs: list[Run], file: str = "best.npz") -> list[Scores]:
    """Return the scores of the runs that saved predictions."""
    return [scores for run in runs if (scores := read_scores(run, file)) is not None]


def training_seconds(run: Run) -> float:
    """Return how long a run trained, without the time spent on measurements."""
    return float(run.last["seconds"]) - float(np.nansum(run.columns["seconds_measuring"]))
