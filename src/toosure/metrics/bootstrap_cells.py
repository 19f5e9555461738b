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


def with_calibrated_hits(cells: Cells, bins: int) -> Cells:
    """Make the hits equal the summed confidence in each bin where the gap may be chance.

    A gap may be chance within sqrt(log N) standard errors (the cut of Andrews & Soares 2010), where
    a calibrated bin has the standard error sqrt(c (1 - c) / n). Other bins get an imaginary row.
    """
    sums = bin_sums_of_cells(cells, bins)
    mean = sums.confidence / sums.counts.clamp(min=1)
    standard_error = (mean * (1 - mean) / sums.counts.clamp(min=1)).clamp(min=0).sqrt()
    cut = cells.counts.sum().clamp(min=2).log().sqrt()
    chance = sums.gaps().abs() <= cut * standard_error
    return mixed_with_calibrated(cells, torch.where(chance, 1.0, 1 / (sums.counts + 1)))


def with_imaginary_rows(cells: Cells, bins: int) -> Cells:
    """Add an imaginary row to each bin, which is right as often as its confidence says.

    Without it a bin of rows that are all right, or all wrong, would not vary when resampled.
    """
    return mixed_with_calibrated(cells, 1 / (bin_sums_of_cells(cells, bins).counts + 1))


def mixed_with_calibrated(cells: Cells, weight: Tensor) -> Cells:
    """Mix cells with calibrated ones: in each bin a share `weight` of the rows is replaced."""
    calibrated = calibrated_cells(cells)
    part = weight.double()[cells.bins, None]  # (levels, 1)
    counts = (1 - part) * cells.counts + part * calibrated.counts

    kept = (1 - part) * cells.counts * cells.confidence
    summed = kept + part * calibrated.counts * calibrated.confidence
    mean = torch.where(counts > 0, summed / counts.clamp(min=1e-300), calibrated.confidence)
    return cells._replace(counts=counts, confidence=mean)


def calibrated_cells(cells: Cells) -> Cells:
    """Make the hits equal the summed confidence at every level of confidence."""
    n = cells.counts.sum(-1, keepdim=True)
    mean = (cells.counts * cells.confidence).sum(-1, keepdim=True) / n.clamp(min=1)
    counts = torch.cat([n * (1 - mean), n * mean], -1)
    return cells._replace(counts=counts, confidence=mean.expand_as(counts))


def error_with_fixed_signs(sums: BinSums, replicas: BinSums, norm: float) -> Tensor:
    """Return the error of replicas with the signs of the gaps fixed as in `sums`.

    It is sum_b share_b w_b gap_b, with weights w for which `sums` themselves have their own error.
    It is linear in the replicas' gaps, so it lacks the bias of absolute values and is never larger.
    Where all gaps of `sums` are 0 there are no signs: it is then minus the error of the replicas.
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
