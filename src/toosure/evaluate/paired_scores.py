"""Numbers of two sets of predictions as functions of how often each row is drawn."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from toosure.evaluate.class_one import OF_CLASS_ONE, class_one_view
from toosure.evaluate.estimates import binned_rows
from toosure.metrics import aurc_from_confidence, ece_from_confidence, smece_from_confidence
from toosure.metrics.confidence import chunked_pairs, top_odds
from toosure.metrics.rank_interval import aurc_of_ranks
from toosure.metrics.ranking import aurc_of_scores
from toosure.metrics.scores import nll_rows
from toosure.metrics.smooth_interval import (
    MAX_GRID,
    MIN_GRID,
    NODES_PER_WIDTH,
    smooth,
    trapezoid_weights,
)
from toosure.predictions import Predictions

MAX_RANKS = 2048
Weighted = Callable[[np.ndarray], float]  # of how often each row is drawn, (N,)


class PairedScore(NamedTuple):
    """One number of both sides, and its change as a function of the rows' weights."""

    key: str
    first: float
    second: float
    change: Weighted
    rows: int
    biased: bool = False  # noise makes it larger, as it does absolute gaps


def paired_scores(
    first: Predictions, second: Predictions, bins: int
) -> tuple[list[PairedScore], str]:
    """Return the numbers to compare, and a sentence on those that are missing."""
    left_out = ""
    makers = {"accuracy": accuracy, "nll": nll, "ece": ece, "smece": smece, "aurc": aurc}
    if first.logits is None or second.logits is None:
        del makers["nll"]
        left_out = "Left out: nll (needs the probability of every class)."

    # As `evaluate` does: one output per example is judged by P(class 1).
    views = judged(first, second)
    scores = []
    for key, make in makers.items():
        one, other = views if key in OF_CLASS_ONE else (first, second)
        scores.append(paired(key, make(one, bins), make(other, bins), first.n))
    return scores, left_out


def judged(first: Predictions, second: Predictions) -> tuple[Predictions, Predictions]:
    """Return the views that calibration is judged by: predicted class, or P(class 1) if binary."""
    if first.binary and second.binary:
        return class_one_view(first), class_one_view(second)
    return first, second


def paired(
    key: str, one: tuple[float, Weighted], other: tuple[float, Weighted], rows: int
) -> PairedScore:
    """Join the two sides of a number."""

    def change(weights: np.ndarray) -> float:
        return other[1](weights) - one[1](weights)

    return PairedScore(key, one[0], other[0], change, rows, biased=key in ("ece", "smece"))


def accuracy(predictions: Predictions, bins: int) -> tuple[float, Weighted]:
    """Return the share of right rows."""
    return mean_of(predictions.correct.double().cpu().numpy())


def nll(predictions: Predictions, bins: int) -> tuple[float, Weighted]:
    """Return the mean negative log-likelihood."""
    assert predictions.logits is not None and predictions.labels is not None
    pairs = chunked_pairs(predictions.logits, predictions.labels)
    rows = torch.cat([nll_rows(*pair) for pair in pairs])
    return mean_of(rows.double().cpu().numpy())


def mean_of(values: np.ndarray) -> tuple[float, Weighted]:
    """Return the mean over rows."""
    if not np.isfinite(values).all():
        return float(values.mean()), lambda weights: np.nan
    return float(values.mean()), lambda weights: float(weights @ values / weights.sum())


def ece(predictions: Predictions, bins: int) -> tuple[float, Weighted]:
    """Return the binned calibration error."""
    keys, gaps = binned_rows(predictions, bins)
    index = keys // 2

    def weighted(weights: np.ndarray) -> float:
        sums = np.bincount(index, weights * gaps, minlength=bins)
        return float(np.abs(sums).sum() / weights.sum())

    value = ece_from_confidence(predictions.confidence, predictions.correct, bins)
    return float(value), weighted


def smece(predictions: Predictions, bins: int) -> tuple[float, Weighted]:
    """Return the smooth calibration error; replicas keep the width of these rows."""
    value = float(smece_from_confidence(predictions.confidence, predictions.correct))
    width = max(value, 1 / MAX_GRID)
    grid = int(np.clip(2 ** np.ceil(np.log2(NODES_PER_WIDTH / width)), MIN_GRID, MAX_GRID))
    confidence = predictions.confidence.double().cpu().numpy()
    gaps = predictions.correct.cpu().numpy() - confidence
    node = np.rint(confidence * grid).astype(np.int64)
    integral = trapezoid_weights(grid)

    def weighted(weights: np.ndarray) -> float:
        sums = np.bincount(node, weights * gaps, minlength=grid + 1)
        return float(np.abs(smooth(sums, width)) @ integral / weights.sum())

    return value, weighted


def aurc(predictions: Predictions, bins: int) -> tuple[float, Weighted]:
    """Return the area under the risk-coverage curve."""
    if predictions.kind == "logits":
        assert predictions.logits is not None and predictions.labels is not None
        score, correct = top_odds(predictions.logits, predictions.labels)
        value = float(aurc_of_scores(score, correct))
    else:
        score, correct = predictions.confidence, predictions.correct
        value = float(aurc_from_confidence(score, correct))

    levels, level = score.double().unique(return_inverse=True)
    if len(levels) > MAX_RANKS:  # neighbours in rank are one step of the curve
        level = level * MAX_RANKS // len(levels)
    cells = (2 * level + correct).cpu().numpy()
    count = 2 * (int(level.max()) + 1)

    def weighted(weights: np.ndarray) -> float:
        counts = torch.from_numpy(np.bincount(cells, weights, minlength=count))
        return float(aurc_of_ranks(counts.view(-1, 2)))

    return value, weighted
