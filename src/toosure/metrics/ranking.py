"""AUROC, AURC and coverage: does confidence rank right before wrong, each class before the rest?"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.confidence import (
    chunked_pairs,
    odds_of_rows,
    probabilities,
    row_chunks,
    top_label,
    top_odds,
)
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_distributions,
    as_metric_inputs,
    check_choice,
    check_finite,
    row_numbers_of_all,
)


def auroc(positive: Tensor, negative: Tensor) -> Tensor:
    """Return P(positive > negative) + P(equal) / 2 over all pairs; NaN when one side is empty.

    >>> float(auroc(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.0])))
    0.875
    """
    if len(positive) == 0 or len(negative) == 0:
        return torch.full((), torch.nan, dtype=torch.float64, device=positive.device)

    # Per positive: how many negatives lie below it, and how many at or below it.
    ordered = sorted_values(negative)
    values = positive.contiguous()
    below = torch.searchsorted(ordered, values)
    at_or_below = torch.searchsorted(ordered, values, right=True)
    return (below.sum() + at_or_below.sum()).double() / 2 / (len(positive) * len(negative))


def auroc_of_counts(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the AUROC of counts per score level (..., levels), lowest level first."""
    below = negative.cumsum(-1) - negative / 2
    return (positive * below).sum(-1) / (positive.sum(-1) * negative.sum(-1))


def sorted_values(values: Tensor) -> Tensor:
    """Return the sorted values; numpy's vectorised sort is several times torch's on a CPU."""
    if values.device.type != "cpu" or values.dtype in (torch.float16, torch.bfloat16):
        return values.sort().values
    return torch.from_numpy(np.sort(values.detach().numpy()))


# Right rows before wrong ones.


def auroc_misclass(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return how well confidence tells right from wrong rows; NaN when all are one of them.

    Hendrycks & Gimpel 2017, arXiv:1610.02136.

    >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    >>> float(auroc_misclass(logits, torch.tensor([0, 1])))
    1.0
    """
    return auroc_misclass_of_scores(*_odds(logits, labels, probs))


def auroc_misclass_from_confidence(confidence: ArrayLike, correct: ArrayLike) -> Tensor:
    """Return the AUROC of `(confidence, correct)`; see `auroc_misclass`."""
    return auroc_misclass_of_scores(*as_confidence(confidence, correct))


def auroc_misclass_of_scores(score: Tensor, correct: Tensor) -> Tensor:
    """Return the AUROC of right against wrong rows by any score."""
    return auroc(score[correct], score[~correct])


def _odds(
    logits: ArrayLike | None, labels: ArrayLike | None, probs: ArrayLike | None
) -> tuple[Tensor, Tensor]:
    """Return log-odds, which rank rows as confidence does but never saturate, and hits.

    For probabilities, the confidence takes the place of the log-odds.
    """
    if probs is not None:
        return top_label(logits, labels, probs=probs)
    logits, labels = as_metric_inputs(logits, labels)
    return top_odds(logits.detach(), labels)


class Coverage(NamedTuple):
    """Accuracy of the most confident k rows, for k = 1 .. N."""

    coverage: Tensor  # (N,) k / N
    accuracy: Tensor  # (N,)


def accuracy_coverage(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Coverage:
    """Return the accuracy of the k most confident rows against the coverage k / N.

    Rows of equal confidence share their mean, as under a random order of them.

    >>> curve = accuracy_coverage(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> curve.accuracy.tolist()
    [1.0, 0.5]
    """
    return _coverage(*_odds(logits, labels, probs))


def accuracy_coverage_from_confidence(confidence: ArrayLike, correct: ArrayLike) -> Coverage:
    """Return the accuracy-coverage curve of `(confidence, correct)`; see `accuracy_coverage`."""
    return _coverage(*as_confidence(confidence, correct))


def _coverage(score: Tensor, correct: Tensor) -> Coverage:
    """Return the curve of checked scores and hits: accuracy of the k surest rows, for every k."""
    values, order = score.detach().sort(descending=True)
    hits = _share_ties(values, correct[order].double())
    k = torch.arange(1, len(values) + 1, dtype=torch.float64, device=values.device)
    return Coverage(k / len(values), hits.cumsum(0) / k)


def _share_ties(values: Tensor, hits: Tensor) -> Tensor:
    """Give rows of equal value their mean, so that the order of ties does not matter."""
    _, group, counts = values.unique_consecutive(return_inverse=True, return_counts=True)
    sums = torch.zeros_like(counts, dtype=hits.dtype).index_add_(0, group, hits)
    means: Tensor = sums / counts
    return means[group]


def aurc(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return 1/N sum_k (error of the k most confident rows); ties share their mean.

    Geifman, Uziel & El-Yaniv 2019, arXiv:1805.08206.

    >>> float(aurc(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])))
    0.25
    """
    return aurc_of_scores(*_odds(logits, labels, probs))


def aurc_from_confidence(confidence: ArrayLike, correct: ArrayLike) -> Tensor:
    """Return the area under the risk-coverage curve of `(confidence, correct)`; see `aurc`."""
    return aurc_of_scores(*as_confidence(confidence, correct))


def aurc_of_scores(score: Tensor, correct: Tensor) -> Tensor:
    """Return the area under the risk-coverage curve of rows ordered by any score."""
    return 1 - _coverage(score, correct).accuracy.mean()


# Each class before the rest.


def auroc_ovr(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    reduction: str = "mean",
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the exact one-vs-rest AUROC of p_k, averaged over the classes that have both sides.

    `reduction="none"` gives the C values, NaN for a class without positives or negatives.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(auroc_ovr(logits, torch.tensor([0, 2, 2, 1]))), 6)
    0.888889
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if probs is not None:
        return _auroc_of_columns(as_distributions(probs).detach().unbind(1), labels, reduction)

    return _auroc_of_columns(ranks_of_columns(logits.detach()), labels, reduction)


def ranks_of_columns(logits: Tensor) -> Iterator[Tensor]:
    """Yield for each class a score that orders rows as p_k does, and never saturates.

    It is log p up to p = 1/2, and -log(1 - p) - 2 log 2 beyond: there p is rounded to equal
    numbers, and 1 - p is not. One column at a time, so that (N, C) scores are never stored.
    """
    parts = [(*odds_of_rows(rows), rows.double().logsumexp(1)) for rows in row_chunks(logits)]
    odds, predicted, top, normaliser = (torch.cat(part) for part in zip(*parts, strict=True))
    check_finite(normaliser)

    log_p = top.double() - normaliser
    beyond_half = odds - log_p - 2 * math.log(2)  # since log(1 - p) = log p - log-odds
    top_score = torch.where(odds > 0, beyond_half, log_p)
    for label, column in enumerate(logits.unbind(1)):
        yield torch.where(predicted == label, top_score, column.double() - normaliser)


def _auroc_of_columns(columns: Iterable[Tensor], labels: Tensor, reduction: str) -> Tensor:
    """Return the AUROC of each class's scores, or the mean of those that have both sides."""
    check_choice("reduction", reduction, ("mean", "none"))
    of_class = ((scores, labels == label) for label, scores in enumerate(columns))
    values = torch.stack([auroc(scores[own], scores[~own]) for scores, own in of_class])
    return values if reduction == "none" else values.nanmean()


def auroc_ovr_binned(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    thresholds: int = 15,
    reduction: str = "mean",
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the one-vs-rest AUROC on a coarse grid of thresholds, as CSAM's tables suggest.

    p_k is replaced by floor(p_k (thresholds - 1)), then ranked with ties counting half. Unlike
    the exact AUROC it rewards softer outputs: read it as the paper's column, not as ranking.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(auroc_ovr_binned(logits, torch.tensor([0, 2, 2, 1]), thresholds=5)), 6)
    0.805556
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if probs is not None:
        rows = as_distributions(probs).detach().clamp(max=1)
        return _auroc_on_thresholds(chunked_pairs(rows, labels), rows, thresholds, reduction)

    pairs = ((probabilities(z), y) for z, y in chunked_pairs(logits.detach(), labels))
    with row_numbers_of_all(logits):
        return _auroc_on_thresholds(pairs, logits, thresholds, reduction)


def _auroc_on_thresholds(
    pairs: Iterable[tuple[Tensor, Tensor]], like: Tensor, thresholds: int, reduction: str
) -> Tensor:
    """Return the AUROC of chunks of `(probabilities, labels)`; `like` has classes and device."""
    check_choice("reduction", reduction, ("mean", "none"))
    if thresholds < 2:
        raise ValueError(f"thresholds must be at least 2; got {thresholds}")

    # Count all rows, and the rows of the class itself, per class and level.
    size = like.shape[1] * thresholds
    all_rows = torch.zeros(size, dtype=torch.int64, device=like.device)
    own_rows = torch.zeros_like(all_rows)
    for probs, labels in pairs:
        check_finite(probs.sum(1))
        level = (probs * (thresholds - 1)).long()
        level += torch.arange(0, size, thresholds, device=level.device)
        all_rows += torch.bincount(level.flatten(), minlength=size)
        own_rows += torch.bincount(level.gather(1, labels[:, None]).squeeze(1), minlength=size)

    positive = own_rows.view(-1, thresholds).double()
    everything = all_rows.view(-1, thresholds).double()
    values = auroc_of_counts(positive, everything - positive)
    return values if reduction == "none" else values.nanmean()
