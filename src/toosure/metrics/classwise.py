"""The calibration error of every class against the rest, in one pass and bounded memory."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, equal_width_edges, error_of
from toosure.metrics.confidence import chunked_pairs, probabilities
from toosure.metrics.inputs import (
    as_pair,
    as_probabilities,
    check_bins,
    check_choice,
    check_finite,
    naming_rows,
)


def classwise_ece(
    logits: Any,
    labels: Any,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
    reduction: str = "mean",
) -> Tensor:
    """Return the one-vs-rest calibration error, over all C classes of the logits.

    cwECE = 1/C sum_k (sum_b n_kb/N |freq_kb - mean p_kb|^norm)^(1/norm); `reduction="sum"` leaves
    the 1/C away, `"none"` gives the C errors. A class without labels counts.
    Kull et al. 2019, arXiv:1910.12656.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(classwise_ece(logits, torch.tensor([0, 2, 2, 1]))), 6)
    0.27807
    """
    return _reduced(classwise_sums(logits, labels, bins, edge), norm, reduction)


def classwise_ece_from_probabilities(
    probs: Any,
    labels: Any,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
    reduction: str = "mean",
) -> Tensor:
    """Return `classwise_ece` of probabilities (N, C), binned as they came.

    softmax(log p) is p up to rounding, which is enough to cross the edge of a bin.

    >>> probs = torch.tensor([[0.2, 0.8], [0.2, 0.8]])
    >>> round(float(classwise_ece_from_probabilities(probs, torch.tensor([1, 1]), bins=5)), 6)
    0.2
    """
    probs, labels = as_probabilities(probs, labels)
    return _reduced(
        _sums_of(chunked_pairs(probs.detach(), labels), probs, bins, edge), norm, reduction
    )


def _reduced(sums: BinSums, norm: float, reduction: str) -> Tensor:
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    errors = error_of(sums, norm)  # (C,)
    return errors if reduction == "none" else getattr(errors, reduction)()


def classwise_sums(logits: Any, labels: Any, bins: int = 15, edge: str = "right") -> BinSums:
    """Sum counts, hits and probabilities per class and bin, each of shape (C, bins).

    A row has at most `bins` probabilities above 1/bins, so only those are sorted into bins; the
    rest of a column, nearly all of it when C is large, is the column's total less those.
    """
    logits, labels = as_pair(logits, labels)
    pairs = ((probabilities(z), y) for z, y in chunked_pairs(logits.detach(), labels))
    with naming_rows(logits):
        return _sums_of(pairs, logits, bins, edge)


def _sums_of(pairs: Iterable[tuple[Tensor, Tensor]], like: Tensor, bins: int, edge: str) -> BinSums:
    """Sum chunks of probabilities and labels, of as many classes as `like` has."""
    check_bins(bins)
    check_choice("edge", edge, ("right", "left"))
    classes, device = like.shape[1], like.device
    total = BinSums(
        torch.zeros(classes * bins, dtype=torch.int64, device=device),
        torch.zeros(classes * bins, dtype=torch.int64, device=device),
        torch.zeros(classes * bins, dtype=torch.float64, device=device),
    )
    for probs, labels in pairs:
        _add_rows(total, probs, labels, bins, edge)
    return BinSums(*(part.view(classes, bins) for part in total))


def _add_rows(total: BinSums, probs: Tensor, labels: Tensor, bins: int, edge: str) -> None:
    """Add a chunk of probabilities (n, C) to the sums, in place."""
    edges = equal_width_edges(bins, probs)
    column = probs.sum(0, dtype=torch.float64)  # (C,)
    if not column.isfinite().all():
        check_finite(probs.sum(1))
    above = probs > edges[1] if edge == "right" else probs >= edges[1]
    classes = above.nonzero()[:, 1]
    values = probs[above]
    index = classes * bins + torch.bucketize(values, edges[1:-1], right=edge == "left")
    size = total.counts.numel()
    counts = torch.bincount(index, minlength=size)
    summed = torch.bincount(index, values.double(), minlength=size).double()  # int64 when empty
    first = slice(None, None, bins)
    counts[first] += len(probs) - counts.view(-1, bins).sum(1)
    summed[first] += column - summed.view(-1, bins).sum(1)
    true = probs.gather(1, labels[:, None]).squeeze(1)
    hit = labels * bins + torch.bucketize(true, edges[1:-1], right=edge == "left")
    total.counts.add_(counts)
    total.confidence.add_(summed)
    total.correct.add_(torch.bincount(hit, minlength=size))
