"""Rows counted in cells of equal confidence and correctness, to bootstrap metrics from counts.

Drawing how often each cell occurs is the same as drawing rows, and takes all replicas at once.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, bin_edges, error_of
from toosure.metrics.interval_ends import ROUNDING

# More distinct confidences are merged into about this many levels, at least 8 per bin.
MAX_BINNED_LEVELS = 256


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
