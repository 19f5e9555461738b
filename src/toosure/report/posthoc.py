"""Calibrators before and after: temperature scaling of each run's saved predictions, in numpy."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.figures import Group
from toosure.figures.groups import name_of
from toosure.report.page import Cell, section, table

MOST = 5_000_000  # numbers in the predictions of a run: some seconds for each
BINS = 15


class Scaled(NamedTuple):
    """What one temperature, fitted on validation, does to the test predictions."""

    temperature: float
    ece: float
    ece_after: float
    nll: float
    nll_after: float
    n: int


def calibrators(groups: Sequence[Group]) -> str:
    """Return the table of runs that saved predictions; nothing where none did."""
    rows: list[list[Cell]] = []
    for group in groups:
        for run in group.runs:
            found = scaled(run.path / "predictions.npz")
            if found:
                rows.append(
                    [
                        *(name_of(run, group), found.temperature, 100 * found.ece),
                        *(100 * found.ece_after, found.nll, found.nll_after, found.n),
                    ]
                )
    if not rows:
        return ""
    note = (
        "One temperature T a run, fitted on validation data by NLL and judged on test data that it "
        "never saw; accuracy stays as it was. Above 1 it cools an over-confident network. For "
        "eleven other calibrators: toosure calibrate."
    )
    header = ("run", "T", "ECE before, points", "ECE after", "NLL before", "NLL after", "samples")
    formats = ("", ".3f", ".2f", ".2f", ".3f", ".3f", ",")
    return section(
        "Temperature scaling, before and after",
        note,
        table(header, rows, formats, sortable=True, minor=(4, 5, 6)),
        name="calibrators",
    )


def scaled(file: Path) -> Scaled | None:
    """Fit a temperature on val, judge it on test; nothing where the file is absent or too large."""
    try:
        found = file.stat()
    except OSError:
        return None
    return None if found.st_size > 8 * MOST else scaled_at(file, found.st_mtime_ns)


@lru_cache(maxsize=1000)  # a live page asks again and again
def scaled_at(file: Path, _: int) -> Scaled | None:
    """Fit and judge the predictions of a file as it is at a time."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            parts = [arrays[k] for k in ("val_logits", "val_labels", "test_logits", "test_labels")]
    except (OSError, ValueError, KeyError, EOFError):
        return None
    logits, labels, test, truth = (np.asarray(part) for part in parts)
    if not (len(labels) and len(truth) and np.isfinite(logits).all() and np.isfinite(test).all()):
        return None
    temperature = fit_temperature(logits.astype(float), labels)
    test = test.astype(float)
    cooled = test / temperature
    return Scaled(
        *(temperature, ece(test, truth), ece(cooled, truth)),
        *(nll(test, truth), nll(cooled, truth), len(truth)),
    )


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return T > 0 with the lowest NLL of logits / T (Guo et al. 2017, arXiv:1706.04599).

    The NLL is convex in 1 / T, so that its one minimum is found by bracketing.
    """
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda log_inverse: nll(logits * np.exp(log_inverse), labels),
        bounds=(np.log(1e-3), np.log(1e3)),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return float(np.exp(-found.x))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_softmax(logits)[np.arange(len(labels)), labels].mean())


def ece(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the ECE of 15 equal-width bins (a, b], as `toosure.metrics.ece` does."""
    confidence = np.exp(log_softmax(logits).max(1))
    correct = logits.argmax(1) == labels
    index = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(index, confidence - correct, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
