"""Calibrators before and after: temperature scaling of each run's saved predictions, in numpy."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.figures import Group
from toosure.figures.groups import name_of
from toosure.report.follow import reason_of
from toosure.report.page import Cell, section, table
from toosure.runs.read import DAMAGE, read_arrays

MOST = 5_000_000  # numbers in the predictions of a run: some seconds for each
BINS = 15
REACH = np.log(1e4)  # how far T may be from the spread of the logits, as a logarithm


class Scaled(NamedTuple):
    """What one temperature, fitted on validation, does to the test predictions."""

    temperature: float
    ece: float
    ece_after: float
    nll: float
    nll_after: float
    n: int
    note: str = ""


def calibrators(groups: Sequence[Group]) -> str:
    """Return the table of runs that saved predictions; nothing where none did."""
    rows: list[list[Cell]] = []
    for group in groups:
        for run in group.runs:
            found = scaled(run.path / "predictions.npz")
            run.damaged.pop("predictions.npz", None)
            if isinstance(found, str):
                run.damaged["predictions.npz"] = found
            elif found:
                rows.append(row_of(name_of(run, group), found))
    if not rows:
        return ""
    note = (
        "One temperature T a run, fitted on validation data by NLL and judged on test data that it "
        "never saw; accuracy stays as it was. Above 1 it cools an over-confident network. For "
        "other calibrators: toosure calibrate."
    )
    header = ("run", "T", "ECE before, points", "ECE after", "NLL before", "NLL after", "samples")
    formats = ("", ".3f", ".2f", ".2f", ".3f", ".3f", ",")
    return section(
        "Temperature scaling, before and after",
        note,
        table(header, rows, formats, sortable=True),
        name="calibrators",
    )


def row_of(name: str, found: Scaled) -> list[Cell]:
    return [
        *((name, found.note), found.temperature, 100 * found.ece, 100 * found.ece_after),
        *(found.nll, found.nll_after, found.n),
    ]


def scaled(file: Path) -> Scaled | str | None:
    """Fit a temperature on val, judge it on test, or say why the file cannot be read.

    Nothing where it is absent, too large, or holds no two splits.
    """
    try:
        found = file.stat()
    except OSError:
        return None
    return None if found.st_size > 8 * MOST else scaled_at(file, found.st_mtime_ns)


@lru_cache(maxsize=1000)  # a live page asks again and again
def scaled_at(file: Path, _: int) -> Scaled | str | None:
    """Fit and judge the predictions of a file as it is at a time."""
    try:
        arrays = read_arrays(file)
        if not {"val_logits", "test_logits"} <= arrays.keys():
            return None
        fit, judge = (pair_of(arrays, split) for split in ("val", "test"))
    except DAMAGE as error:
        return reason_of(error)
    temperature, note = fit_temperature(*fit)
    logits, labels = judge
    cooled = logits / temperature
    return Scaled(
        temperature=temperature,
        ece=ece(logits, labels),
        ece_after=ece(cooled, labels),
        nll=nll(logits, labels),
        nll_after=nll(cooled, labels),
        n=len(labels),
        note=note,
    )


def pair_of(arrays: Mapping[str, np.ndarray], split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits (N, C) in float64 and labels (N,) of a split, checked."""
    logits, labels = arrays[f"{split}_logits"], arrays[f"{split}_labels"]
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not logits.size:
        raise ValueError(f"{split}_logits are {logits.shape} and {split}_labels {labels.shape}")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= logits.shape[1]:
        raise ValueError(f"{split}_labels must be integers in [0, {logits.shape[1]})")
    logits = logits.astype(float)
    if not np.isfinite(logits).all():
        raise ValueError(f"{split}_logits hold NaN or infinity")
    return logits, labels


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> tuple[float, str]:
    """Return T > 0 with the lowest NLL of logits / T (Guo et al. 2017, arXiv:1706.04599).

    The NLL is convex in 1 / T, so that its one minimum is found by bracketing. Where it has none
    T is 1, and the text says why.
    """
    from scipy.optimize import minimize_scalar

    above = logits.max(1) - logits.mean(1)
    spread = float(np.median(above)) or float(above.mean())
    if spread == 0:
        return 1.0, "T stays 1: every validation row has the same logit for every class"
    if (logits[np.arange(len(labels)), labels] >= logits.max(1)).all():
        return 1.0, "T stays 1: every validation row is right, so that the NLL has no minimum"
    found = minimize_scalar(
        lambda log_inverse: nll(logits / spread * np.exp(log_inverse), labels),
        bounds=(-REACH, REACH),
        method="bounded",
        options={"xatol": 1e-8},
    )
    if abs(found.x) > REACH - 0.01:
        return 1.0, "T stays 1: the NLL of the validation rows has no minimum"
    return spread * float(np.exp(-found.x)), ""


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_softmax(logits)[np.arange(len(labels)), labels].mean())


def ece(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the ECE of 15 equal-width bins (a, b], as `toosure.metrics.ece` does."""
    confidence = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
    correct = logits.argmax(1) == labels
    index = np.searchsorted(np.arange(1, BINS) / BINS, confidence)
    gaps = np.bincount(index, confidence - correct, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
