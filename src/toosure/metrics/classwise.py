"""Classwise ECE: the calibration error of every class against the rest, in bounded memory."""

from collections.abc import Iterable

import torch
from torch import Tensor

from toosure.metrics.binned import EDGES, BinSums, equal_width_edges, error_of
from toosure.metrics.confidence import chunked_pairs, probabilities
from toosure.metrics.inputs import (
    ArrayLike,
    as_distributions,
    as_metric_inputs,
    check_bins,
    check_choice,
    check_finite,
    row_numbers_of_all,
)

REDUCTIONS = ("mean", "sum", "none")  # over the errors of the classes


def classwise_ece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
    reduction: str = "mean",
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the one-vs-rest calibration error, over all C classes of the logits.

    cwECE = 1/C sum_k (sum_b n_kb/N |freq_kb - mean p_kb|^norm)^(1/norm); `reduction="sum"` leaves
    the 1/C away, `"none"` gives the C errors. A class without labels counts.
    Kull et al. 2019, arXiv:1910.12656.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(classwise_ece(logits, torch.tensor([0, 2, 2, 1]))), 6)
    0.27807
    """
    sums = classwise_sums(logits, labels, bins, edge, probs=probs)
    return reduced(error_of(sums, norm), reduction)


def reduced(errors: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of errors (..., C) over classes, or all of them for "none"."""
    check_choice("reduction", reduction, REDUCTIONS)
    if reduction == "mean":
        return errors.mean(-1)
    return errors.sum(-1) if reduction == "sum" else errors


def classwise_sums(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    *,
    probs: ArrayLike | None = None,
) -> BinSums:
    """Sum counts, hits and probabilities per class and bin, each of shape (C, bins)."""
    logits, labels = as_metric_inputs(logits, labels, probs)
    if probs is not None:  # binned as given, except numbers rounded to just above 1
        rows = as_distributions(probs).detach().clamp(max=1)
        chunked = chunked_pairs(rows, labels)
        return _sum_chunks(chunked, rows.shape[1], rows.device, bins, edge)

    chunks = (
        (probabilities(rows), targets) for rows, targets in chunked_pairs(logits.detach(), labels)
    )
    with row_numbers_of_all(logits):
        return _sum_chunks(chunks, logits.shape[1], logits.device, bins, edge)


def _sum_chunks(
    chunks: Iterable[tuple[Tensor, Tensor]],
    classes: int,
    device: torch.device,
    bins: int,
    edge: str,
) -> BinSums:
    """Sum chunks of `(probabilities, labels)` per class and bin."""
    check_bins(bins)
    check_choice("edge", edge, EDGES)
    total = BinSums(
        torch.zeros(classes * bins, dtype=torch.int64, device=device),
        torch.zeros(classes * bins, dtype=torch.int64, device=device),
        torch.zeros(classes * bins, dtype=torch.float64, device=device),
    )

    for probs, labels in chunks:
        _add_chunk(total, probs, labels, bins, edge)
    return BinSums(*(part.view(classes, bins) for part in total))


def _add_chunk(total: BinSums, probs: Tensor, labels: Tensor, bins: int, edge: str) -> None:
    """Add a chunk of probabilities (n, C) to the sums, in place.

    A row has at most `bins` probabilities above 1/bins, so only those are sorted into bins. The
    first bin of a class, which holds nearly all rows when C is large, gets the column's total less
    the sorted ones.
    """
    edges = equal_width_edges(bins, probs)
    column = probs.sum(0, dtype=torch.float64)  # (C,)
    if not column.isfinite().all():
        check_finite(probs.sum(1))

    # Only what lies above the first bin is sorted into bins.
    above = probs > edges[1] if edge == "right" else probs >= edges[1]
    classes = above.nonzero()[:, 1]
    values = probs[above]
    index = classes * bins + torch.bucketize(values, edges[1:-1], right=edge == "left")
    size = total.counts.numel()
    counts = torch.bincount(index, minlength=size)
    summed = torch.bincount(index, values.double(), minlength=size).double()  # int64 when empty

    # The first bin of each class is the rest of its column.
    first = slice(None, None, bins)
    counts[first] += len(probs) - counts.view(-1, bins).sum(1)
    summed[first] += column - summed.view(-1, bins).sum(1)

    # Each row is a hit of its own class only, in the bin of that class's probability.
    true = probs.gather(1, labels[:, None]).squeeze(1)
    hit = labels * bins + torch.bucketize(true, edges[1:-1], right=edge == "left")

    total.counts.add_(counts)
    total.confidence.add_(summed)
    total.correct.add_(torch.bincount(hit, minlength=size))
