"""Predictions that a run kept, and what they say: accuracy and calibration on the test split."""

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


def scores(run: Run, file: str = "best.npz") -> Scores | None:
    """Read the test predictions of a run, at its best step (`best.npz`) or its end.

    Nothing where the run kept none.
    """
    try:
        with np.load(run.path / file, allow_pickle=False) as arrays:
            logits = torch.from_numpy(arrays["test_logits"])
            labels = torch.from_numpy(arrays["test_labels"])
            step = int(arrays["step"]) if "step" in arrays.files else int(run.last["step"])
    except (OSError, KeyError):
        return None
    return Scores(
        float(metrics.accuracy(logits, labels)), float(metrics.ece(logits, labels, BINS)),
        float(metrics.mce(logits, labels, BINS)),
        float(metrics.adaptive_ece(logits, labels, BINS)),
        float(metrics.classwise_ece(logits, labels, BINS)), float(metrics.nll(logits, labels)),
        step,
    )  # fmt: skip


def seconds_of_training(run: Run) -> float:
    """Return the seconds a run took, measuring left out."""
    return float(run.last["seconds"]) - float(np.nansum(run.columns["seconds_measuring"]))
