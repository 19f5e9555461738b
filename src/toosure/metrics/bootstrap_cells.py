"""Rows counted in cells of equal confidence and correctness, to bootstrap metrics from counts.

Drawing how often each cell occurs is the same as drawing rows, and takes all replicas at once.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, bin_edges, error_of
from toosure.metrics.inputs import ArrayLike, as_distributions, check_level
from toosure.metrics.ranking import auroc_of_counts

MAX_LEVELS = 512  # more distinct values than this are merged into about that many levels
ROUNDING = 1e-12  # sums of the same numbers in another order may differ by so much
MAX_BINNED_LEVELS = 256  # or, within bins, into about that many: at least 8 slices per bin


class Interval(NamedTuple):
    """A value and the interval around it; the ends are NaN where there is none."""

    value: Tensor
    low: Tensor
    high: Tensor


def without_interval(value: Tensor) -> Interval:
    """Return a value with ends that are NaN."""
    nowhere = torch.full_like(value, torch.nan)
    return Interval(value, nowhere, nowhere)


def holding_value(interval: Interval) -> Interval:
    """Return the interval, widened to hold its value; NaN stays."""
    value, low, high = interval
    return Interval(value, torch.minimum(low, value), torch.maximum(high, value))


def hull(first: Interval, second: Interval) -> Interval:
    """Return the first interval, widened to hold the second."""
    value, low, high = first
    return Interval(
        value, torch.minimum(low, second.low.to(low)), torch.maximum(high, second.high.to(high))
    )


def quantiles(offsets: Tensor, level: float) -> Tensor:
    """Return the quantiles over the replicas that leave (1 - level) / 2 on either side, (2, ..)."""
    check_level(level)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return offsets.double().cpu().nanquantile(tails, 0)


class Cells(NamedTuple):
    """Rows counted by confidence level and by whether they are right."""

    counts: Tensor  # (..., levels, 2), float64: wrong, right
    confidence: Tensor  # (levels, 2) mean confidence
    bins: Tensor  # (levels,) the bin each level lies in


def gather_cells(
    confidence: Tensor, correct: Tensor, adaptive: bool, bins: int, edge: str
) -> Cells:
    """Count rows by level: each distinct confidence, or slices of each bin when these are many."""
    edges = bin_edges(confidence, bins, adaptive)
    levels, level = confidence.unique(return_inverse=True)
    if len(levels) > MAX_BINNED_LEVELS:
        # Cut every bin into the same number of slices; a slice is a level.
        slices = max(8, -(-MAX_BINNED_LEVELS // bins))
        steps = torch.arange(slices, dtype=torch.float64, device=edges.device) / slices
        starts = edges[:-1].double()
        fine = (starts[:, None] + (edges[1:].double() - starts)[:, None] * steps).flatten()
        fine = fine.to(edges.dtype)
        level = torch.bucketize(confidence, fine[1:], right=edge == "left")
        bin_of_level = torch.arange(len(fine), device=edges.device) // slices
    else:
        bin_of_level = torch.bucketize(levels, edges[1:-1], right=edge == "left")

    cell = level * 2 + correct
    size = 2 * len(bin_of_level)
    counts = torch.bincount(cell, minlength=size).double()
    mean = torch.bincount(cell, confidence.double(), minlength=size) / counts.clamp(min=1)
    return Cells(counts.view(-1, 2), mean.view(-1, 2), bin_of_level)


def bin_sums_of_cells(cells: Cells, bins: int) -> BinSums:
    """Return the bin sums of each replica, (..., bins)."""
    member = torch.nn.functional.one_hot(cells.bins, bins).double()  # (levels, bins)
    summed = (cells.counts * cells.confidence).sum(-1)
    return BinSums(
        counts=cells.counts.sum(-1) @ member,
        correct=cells.counts[..., 1] @ member,
        confidence=summed @ member,
    )


def with_claimed_hits(cells: Cells, bins: int) -> Cells:
    """Return the cells with as many hits as claimed in each bin whose gap may be chance.

    That is a gap within sqrt(log N) standard errors (the cut of Andrews & Soares 2010), the error
    being that of a calibrated bin, sqrt(c (1 - c) / n). Other bins get an imaginary row.
    """
    sums = bin_sums_of_cells(cells, bins)
    mean = sums.confidence / sums.counts.clamp(min=1)
    standard_error = (mean * (1 - mean) / sums.counts.clamp(min=1)).clamp(min=0).sqrt()
    cut = cells.counts.sum().clamp(min=2).log().sqrt()
    chance = sums.gaps().abs() <= cut * standard_error
    return mixed_with_claims(cells, torch.where(chance, 1.0, 1 / (sums.counts + 1)))


def with_imaginary_rows(cells: Cells, bins: int) -> Cells:
    """Return the cells with one imaginary row in each bin, right as often as claimed.

    A bin of rows that are all right, or all wrong, would not vary when it is resampled.
    """
    return mixed_with_claims(cells, 1 / (bin_sums_of_cells(cells, bins).counts + 1))


def mixed_with_claims(cells: Cells, weight: Tensor) -> Cells:
    """Return cells of which a part, (bins,), is right as often as claimed; their sizes stay."""
    claims = claimed_cells(cells)
    part = weight.double()[cells.bins, None]  # (levels, 1)
    counts = (1 - part) * cells.counts + part * claims.counts

    kept = (1 - part) * cells.counts * cells.confidence
    summed = kept + part * claims.counts * claims.confidence
    mean = torch.where(counts > 0, summed / counts.clamp(min=1e-300), claims.confidence)
    return cells._replace(counts=counts, confidence=mean)


def claimed_cells(cells: Cells) -> Cells:
    """Return the cells with as many hits as claimed at every level of confidence."""
    n = cells.counts.sum(-1, keepdim=True)
    claimed = (cells.counts * cells.confidence).sum(-1, keepdim=True) / n.clamp(min=1)
    counts = torch.cat([n * (1 - claimed), n * claimed], -1)
    return cells._replace(counts=counts, confidence=claimed.expand_as(counts))


def error_along(sums: BinSums, replicas: BinSums, norm: float) -> Tensor:
    """Return the error of replicas with the direction of the gaps held as in `sums`.

    sum_b share_b w_b gap_b with the weights w that make it the error of `sums` itself: linear in
    the replicas' gaps, so without the bias that their absolute values have, and never above it.
    Gaps that are all 0 have no direction: then replicas err by all of their size, downwards.
    """
    gaps = sums.gaps()
    error = error_of(sums, norm)
    if error <= ROUNDING:
        return -error_of(replicas, norm)
    if norm == math.inf:
        top = gaps.abs().argmax()
        return gaps[top].sign() * replicas.gaps()[..., top]

    if norm == 1:
        weights = torch.where(gaps < 0, -1.0, 1.0).double()
    else:
        weights = gaps / error
    return (replicas.shares() * replicas.gaps()) @ weights


def count_by_rank(score: Tensor, correct: Tensor) -> Tensor:
    """Count wrong and right rows at each score, lowest first, (levels, 2).

    Many scores are merged into levels of equally many rows, which stay fine wherever scores crowd;
    equal scores are never split.
    """
    levels, level = score.unique(return_inverse=True)
    counts = torch.bincount(level * 2 + correct, minlength=2 * len(levels)).view(-1, 2)
    if len(levels) <= MAX_LEVELS:
        return counts

    below = counts.sum(1).cumsum(0) - counts.sum(1)
    merged = below * MAX_LEVELS // len(score)
    return counts.new_zeros(MAX_LEVELS, 2).index_add_(0, merged, counts)


def auroc_of_ranks(counts: Tensor) -> Tensor:
    """Return the AUROC of right against wrong rows from counts (..., levels, 2)."""
    return auroc_of_counts(counts[..., 1], counts[..., 0])


def aurc_of_ranks(counts: Tensor) -> Tensor:
    """Return the area under the risk-coverage curve from counts (..., levels, 2).

    A level of n rows and accuracy a, below K rows of which H are right, adds
    sum_{j=1..n} (H + j a) / (K + j) = n a + (H - K a) (psi(K + n + 1) - psi(K + 1)).
    """
    counts = counts.flip(-2)
    n = counts.sum(-1)
    hits = counts[..., 1]
    a = hits / n.clamp(min=1)

    before = n.cumsum(-1) - n
    hits_before = hits.cumsum(-1) - hits
    harmonic = torch.digamma(before + n + 1) - torch.digamma(before + 1)
    area = (hits + (hits_before - before * a) * harmonic).sum(-1)
    return 1 - area / n.sum(-1)


def group_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return distinct values and how often each occurs, or the means and sizes of groups when many.

    A group holds an equal part of the rows and of their distance from the mean together, so that
    rare values far out, which make most of the variance, stay by themselves.
    """
    levels, counts = values.unique(return_counts=True)
    if len(levels) <= MAX_LEVELS:
        return levels, counts

    distance = counts * (levels - values.mean()).abs()
    position = (counts / len(values) + distance / distance.sum()).cumsum(0)  # up to 2
    group = (position * (MAX_LEVELS / 2)).long().unique_consecutive(return_inverse=True)[1]
    sizes = torch.bincount(group, counts.double())
    means = torch.bincount(group, counts * levels) / sizes

    # Groups leave out the variance within them: stretch them about the mean to that of all rows.
    centre = values.mean()
    lost = values.var(correction=0) / (sizes @ (means - centre).square() / len(values))
    return centre + (means - centre) * lost.sqrt(), sizes


def on_rows(
    metric: Callable[..., Tensor],
    logits: Tensor,
    labels: Tensor,
    probs: ArrayLike | None,
    options: dict[str, Any],
) -> Callable[[Tensor | slice], Tensor]:
    """Return the metric as a function of the rows to take.

    Probabilities go to a metric that takes them, else their logarithm.
    """
    if probs is not None and "probs" in inspect.signature(metric).parameters:
        rows = as_distributions(probs).detach()
        return lambda i: metric(probs=rows[i], labels=labels[i], **options)

    return lambda i: metric(logits[i], labels[i], **options)
