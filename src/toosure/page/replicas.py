"""The scores of a run's last predictions, on all examples and on resampled ones.

Pages need no torch, so replicas are drawn here, as one matrix of weights for all runs, and not by
`toosure.metrics.resampler`.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.runs import Run
from toosure.runs.array_file import READ_ERRORS, read_arrays
from toosure.runs.regular_files import Signature, signature
from toosure.runs.row_units import unit_array, unit_in

KEYS = ("accuracy", "nll", "ece", "smece")
BINS = 15
GRID = 20 * BINS  # cells of confidence, for the bins and for smECE
MODES = GRID // 2
MIN_REPLICAS = 20
MAX_REPLICAS = 200
MAX_DRAWS = 1_000_000  # replicas times examples
BISECTIONS = 20  # of the bandwidth of smECE, which is then known to 1e-6


class ExampleScores(NamedTuple):
    """The confidence, the hit and the NLL of each example."""

    confidence: np.ndarray  # (N,)
    correct: np.ndarray  # (N,)
    nll: np.ndarray  # (N,)


def example_scores(logits: np.ndarray, labels: np.ndarray) -> ExampleScores:
    """Score each example; a single logit is of class 1 against class 0.

    >>> scores = example_scores(np.log([[3.0, 1.0]]), np.array([0]))
    >>> round(float(scores.confidence[0]), 6), bool(scores.correct[0])
    (0.75, True)
    """
    logits = np.asarray(logits, dtype=float).reshape(len(labels), -1)  # (N, C)
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    classes = logits.shape[1]
    if labels.ndim != 1 or (labels < 0).any() or (labels >= classes).any():
        raise ValueError(f"labels must be one number in [0, {classes}) for each row")

    top = logits.max(1)
    normalizer = top + np.log(np.exp(logits - top[:, None]).sum(1))
    of_label = logits[np.arange(len(labels)), labels]
    return ExampleScores(
        np.exp(top - normalizer), logits.argmax(1) == labels, normalizer - of_label
    )


class Replicas(NamedTuple):
    """The scores of one run on all examples, and on resampled ones."""

    values: np.ndarray  # (4,) in the order of KEYS
    samples: np.ndarray  # (replicas, 4)
    n: int
    examples: str  # a digest of the labels, equal for equal examples


@lru_cache(maxsize=4)  # several runs have the same examples
def resampling_weights(n: int, examples: int) -> np.ndarray:
    """Return how often each of n examples or groups is drawn in each replica, (B, n).

    The draws are the same for all runs. B falls with the number of `examples`.
    """
    count = int(np.clip(MAX_DRAWS // max(1, examples), MIN_REPLICAS, MAX_REPLICAS))
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), count)
    return draws.astype(np.float32)


def replicas_of(
    scores: ExampleScores, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return accuracy, NLL, ECE and smECE of all examples (4,) and of each replica (B, 4).

    `groups` numbers the group of each example from 0: groups are drawn whole.
    """
    n = len(scores.correct)
    if groups is None:
        weights = resampling_weights(n, n)
    else:
        weights = resampling_weights(int(groups.max()) + 1, n)[:, groups]
        weights = weights * (n / weights.sum(1, keepdims=True))  # groups differ in size
    weights = np.concatenate([np.ones((1, n), np.float32), weights], dtype=np.float32)

    # Sorted by confidence, each cell of the grid is one range of examples.
    order = np.argsort(scores.confidence, kind="stable")
    confidence = scores.confidence[order]
    residual = (scores.correct[order] - confidence).astype(np.float32)
    cell = np.clip(np.ceil(confidence * GRID).astype(int) - 1, 0, GRID - 1)
    filled, starts = np.unique(cell, return_index=True)
    gaps = np.zeros((len(weights), GRID))
    gaps[:, filled] = np.add.reduceat(weights[:, order] * residual, starts, axis=1) / n

    accuracy = weights @ scores.correct.astype(np.float32) / n
    nll = weights @ scores.nll.astype(np.float32) / n
    ece = np.abs(gaps.reshape(-1, BINS, GRID // BINS).sum(2)).sum(1)
    table = np.stack([accuracy, nll, ece, smooth_errors(gaps)], axis=1)
    return table[0], table[1:]


def smooth_errors(gaps: np.ndarray) -> np.ndarray:
    """Return smECE of each row of gaps over the cells, at the bandwidth of the first row; (B,).

    The gap is a cosine series, damped by a reflected Gaussian: see `toosure.metrics.smece`.
    """
    centres = (np.arange(GRID) + 0.5) / GRID
    waves = np.cos(np.pi * np.outer(centres, np.arange(MODES)))  # (GRID, MODES)
    coefficients = gaps @ waves
    coefficients[:, 1:] *= 2

    def area(rows: np.ndarray, width: float) -> np.ndarray:
        damped = rows * np.exp(-0.5 * (np.pi * np.arange(MODES) * width) ** 2)
        return np.asarray(np.abs(damped @ waves.T).mean(1))  # (rows,)

    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):  # the area falls with the width: find where they are equal
        middle = (low + high) / 2
        if area(coefficients[:1], middle)[0] > middle:
            low = middle
        else:
            high = middle
    return area(coefficients, high)


@lru_cache(maxsize=2048)
def replicas_in(file: Path, _: Signature | None, follow_links: bool, split: str) -> Replicas | None:
    """Return the replicas of a file of predictions; None if it lacks the split."""
    try:
        arrays = read_arrays(file, follow_links)
        labels = arrays[f"{split}_labels"].astype(int)
        if not len(labels):
            return None
        scores = example_scores(arrays[f"{split}_logits"], labels)
        groups = groups_in(arrays, split)
    except READ_ERRORS:
        return None
    if not np.isfinite(scores.nll).all():
        return None

    digest = hashlib.sha256(labels.tobytes()).hexdigest()
    return Replicas(*replicas_of(scores, groups), len(labels), digest)


def groups_in(arrays: Mapping[str, np.ndarray], split: str) -> np.ndarray | None:
    """Return the number of each row's sequence or image; None if every row stands alone."""
    unit = unit_in(arrays, split)
    if unit is None:
        return None
    numbers = arrays[unit_array(split, unit)]
    if numbers.shape != (len(arrays[f"{split}_labels"]),):
        return None
    groups = np.unique(numbers, return_inverse=True)[1]
    return groups if groups.max() > 0 else None  # one sequence alone shows no spread


def replicas_of_run(run: Run, split: str) -> Replicas | None:
    """Return the replicas of a run's predictions for a split; None if it kept none."""
    file = run.last_predictions
    return replicas_in(file, signature(file), run.follow_links, split)
