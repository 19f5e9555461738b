"""Does confidence rank right before wrong, each class before the rest, known before unknown?"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.metrics.confidence import (
    chunked_pairs,
    odds_of_rows,
    probabilities,
    row_chunks,
    top_odds,
)
from toosure.metrics.inputs import (
    as_confidence,
    as_logits,
    as_pair,
    as_probabilities,
    check_choice,
    check_finite,
    naming_rows,
)
from toosure.metrics.scores import entropy_rows


def auroc(positive: Tensor, negative: Tensor) -> Tensor:
    """Return P(positive > negative) + P(equal) / 2 over all pairs; NaN when one side is empty.

    >>> float(auroc(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.0])))
    0.875
    """
    if len(positive) == 0 or len(negative) == 0:
        return torch.full((), torch.nan, dtype=torch.float64, device=positive.device)
    below, upto = _ranks(positive.contiguous(), sorted_values(negative))
    return (below.sum() + upto.sum()).double() / 2 / (len(positive) * len(negative))


def sorted_values(values: Tensor) -> Tensor:
    """Return the sorted values; numpy's vectorised sort is several times torch's on a CPU."""
    if values.device.type != "cpu" or values.dtype in (torch.float16, torch.bfloat16):
        return values.sort().values
    import numpy

    return torch.from_numpy(numpy.sort(values.detach().numpy()))


def _ranks(values: Tensor, ordered: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many of `ordered` lie below each value, and how many at or below it."""
    return torch.searchsorted(ordered, values), torch.searchsorted(ordered, values, right=True)


def auroc_misclass_from_confidence(confidence: Any, correct: Any) -> Tensor:
    """Return the AUROC of `(confidence, correct)`; see `auroc_misclass`."""
    confidence, correct = as_confidence(confidence, correct)
    return auroc(confidence[correct], confidence[~correct])


def auroc_misclass(logits: Any, labels: Any) -> Tensor:
    """Return how well confidence tells right from wrong rows; NaN when all are one of them.

    Hendrycks & Gimpel 2017, arXiv:1610.02136.

    >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    >>> float(auroc_misclass(logits, torch.tensor([0, 1])))
    1.0
    """
    odds, correct = _odds(logits, labels)
    return auroc(odds[correct], odds[~correct])


def _odds(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return what ranks rows as their confidence does, but never saturates, and the hits."""
    logits, labels = as_pair(logits, labels)
    return top_odds(logits.detach(), labels)


def auroc_ovr(logits: Any, labels: Any, reduction: str = "mean") -> Tensor:
    """Return the exact one-vs-rest AUROC of p_k, averaged over the classes that have both sides.

    `reduction="none"` gives the C values, NaN for a class without positives or negatives.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(auroc_ovr(logits, torch.tensor([0, 2, 2, 1]))), 6)
    0.888889
    """
    logits, labels = as_pair(logits, labels)
    total = torch.cat([rows.logsumexp(1) for rows in row_chunks(logits.detach())])
    check_finite(total)
    columns = ((z.detach().to(total.dtype) - total).exp() for z in logits.unbind(1))
    return _over_classes(columns, labels, reduction)


def auroc_ovr_from_probabilities(probs: Any, labels: Any, reduction: str = "mean") -> Tensor:
    """Return `auroc_ovr` of probabilities (N, C) as they came: softmax(log p) would break ties.

    >>> float(auroc_ovr_from_probabilities([[0.9, 0.1], [0.8, 0.2]], [0, 1]))
    1.0
    """
    probs, labels = as_probabilities(probs, labels)
    return _over_classes(probs.detach().unbind(1), labels, reduction)


def _over_classes(columns: Iterable[Tensor], labels: Tensor, reduction: str) -> Tensor:
    """Return the AUROC of each class's scores, or the mean of those that have both sides."""
    check_choice("reduction", reduction, ("mean", "none"))
    positive = ((scores, labels == label) for label, scores in enumerate(columns))
    values = torch.stack([auroc(scores[own], scores[~own]) for scores, own in positive])
    return values if reduction == "none" else values.nanmean()


def auroc_ovr_binned(
    logits: Any, labels: Any, thresholds: int = 15, reduction: str = "mean"
) -> Tensor:
    """Return the one-vs-rest AUROC on a coarse grid of thresholds, as CSAM's tables suggest.

    p_k is replaced by floor(p_k (thresholds - 1)), then ranked with ties counting half. Unlike
    the exact AUROC it rewards softer outputs: read it as the paper's column, not as ranking.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(auroc_ovr_binned(logits, torch.tensor([0, 2, 2, 1]), thresholds=5)), 6)
    0.805556
    """
    logits, labels = as_pair(logits, labels)
    pairs = ((probabilities(z), y) for z, y in chunked_pairs(logits.detach(), labels))
    with naming_rows(logits):
        return _on_thresholds(pairs, logits, thresholds, reduction)


def auroc_ovr_binned_from_probabilities(
    probs: Any, labels: Any, thresholds: int = 15, reduction: str = "mean"
) -> Tensor:
    """Return `auroc_ovr_binned` of probabilities (N, C) as they came."""
    probs, labels = as_probabilities(probs, labels)
    pairs = chunked_pairs(probs.detach(), labels)
    return _on_thresholds(pairs, probs, thresholds, reduction)


def _on_thresholds(
    pairs: Iterable[tuple[Tensor, Tensor]], like: Tensor, thresholds: int, reduction: str
) -> Tensor:
    """Return the AUROC of chunks of probabilities and labels, of as many classes as `like` has."""
    check_choice("reduction", reduction, ("mean", "none"))
    if thresholds < 2:
        raise ValueError(f"thresholds must be at least 2; got {thresholds}")
    size = like.shape[1] * thresholds
    everything = torch.zeros(size, dtype=torch.int64, device=like.device)
    positives = torch.zeros_like(everything)
    for probs, labels in pairs:
        check_finite(probs.sum(1))
        level = (probs * (thresholds - 1)).long()
        level += torch.arange(0, size, thresholds, device=level.device)
        everything += torch.bincount(level.flatten(), minlength=size)
        positives += torch.bincount(level.gather(1, labels[:, None]).squeeze(1), minlength=size)
    hits, all_ = positives.view(-1, thresholds).double(), everything.view(-1, thresholds).double()
    scores = auroc_of_counts(hits, all_ - hits)
    return scores if reduction == "none" else scores.nanmean()


def auroc_of_counts(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the AUROC of counts per score level (..., levels), lowest level first."""
    below = negative.cumsum(-1) - negative / 2
    return (positive * below).sum(-1) / (positive.sum(-1) * negative.sum(-1))


class Coverage(NamedTuple):
    """Accuracy of the most confident k rows, for k = 1 .. N."""

    coverage: Tensor  # (N,) k / N
    accuracy: Tensor  # (N,)


def accuracy_coverage_from_confidence(confidence: Any, correct: Any) -> Coverage:
    """Return the accuracy-coverage curve of `(confidence, correct)`; see `accuracy_coverage`."""
    return _coverage(*as_confidence(confidence, correct))


def _coverage(score: Tensor, correct: Tensor) -> Coverage:
    values, order = score.detach().sort(descending=True)
    hits = _share_ties(values, correct[order].double())
    kept = torch.arange(1, len(values) + 1, dtype=torch.float64, device=values.device)
    return Coverage(kept / len(values), hits.cumsum(0) / kept)


def _share_ties(values: Tensor, hits: Tensor) -> Tensor:
    """Give rows of equal value their mean, so that the order of ties does not matter."""
    _, group, counts = values.unique_consecutive(return_inverse=True, return_counts=True)
    means = torch.zeros_like(counts, dtype=hits.dtype).index_add_(0, group, hits) / counts
    return means[group]


def accuracy_coverage(logits: Any, labels: Any) -> Coverage:
    """Return the accuracy of the k most confident rows against the coverage k / N.

    Rows of equal confidence share their mean, as under a random order of them.

    >>> curve = accuracy_coverage(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> curve.accuracy.tolist()
    [1.0, 0.5]
    """
    return _coverage(*_odds(logits, labels))


def aurc_from_confidence(confidence: Any, correct: Any) -> Tensor:
    """Return the area under the risk-coverage curve of `(confidence, correct)`; see `aurc`."""
    return 1 - accuracy_coverage_from_confidence(confidence, correct).accuracy.mean()


def aurc(logits: Any, labels: Any) -> Tensor:
    """Return 1/N sum_k (error of the k most confident rows); ties share their mean.

    Geifman, Uziel & El-Yaniv 2019, arXiv:1805.08206.

    >>> float(aurc(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])))
    0.25
    """
    return 1 - accuracy_coverage(logits, labels).accuracy.mean()


def auroc_ood(logits: Any, ood_logits: Any, score: str = "confidence") -> Tensor:
    """Return how well a score tells in-distribution rows (higher) from others.

    score: "confidence" (max p), "entropy" (its negative) or "energy" (logsumexp of the logits).

    >>> float(auroc_ood(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]])))
    1.0
    """
    return auroc(ood_score(logits, score), ood_score(ood_logits, score))


def fpr95_ood(logits: Any, ood_logits: Any, score: str = "confidence") -> Tensor:
    """Return the share of others accepted at the threshold that keeps 95 % of the rows.

    The threshold is the highest score that at least 95 % of the in-distribution rows reach.

    >>> float(fpr95_ood(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]])))
    0.0
    """
    inside, outside = ood_score(logits, score), ood_score(ood_logits, score)
    dropped = len(inside) // 20  # at most 5 % may lie below the threshold
    threshold = sorted_values(inside)[dropped]
    return (outside >= threshold).double().mean()


def ood_score(logits: Any, score: str = "confidence") -> Tensor:
    """Return a per-row score, (N,) float64, that is higher for rows like the training data.

    float64 lets two sets of different precision be compared. "confidence" is its log-odds, which
    rank alike and do not saturate.
    """
    check_choice("score", score, ("confidence", "entropy", "energy"))
    logits = as_logits(logits).detach()
    of = {
        "confidence": lambda rows: odds_of_rows(rows)[0],
        "entropy": lambda rows: -entropy_rows(rows),
        "energy": lambda rows: rows.logsumexp(1),
    }[score]
    check_finite(torch.cat([rows.amax(1) for rows in row_chunks(logits)]))
    return torch.cat([of(rows.double()) for rows in row_chunks(logits)])
