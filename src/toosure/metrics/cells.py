"""Rows gathered by confidence and hit: what bootstrap replicas of a metric are computed from."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics import binned, debiased, ranking

_CELLS = 2048  # more distinct confidences than this are gathered into about that many levels


class Cells(NamedTuple):
    """Rows gathered by confidence level and by hit."""

    counts: Tensor  # (..., levels, 2), float64: wrong, right
    confidence: Tensor  # (levels, 2) mean confidence
    bins: Tensor  # (levels,) the bin each level lies in


def gather(
    confidence: Tensor,
    correct: Tensor,
    adaptive: bool = False,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
) -> Cells:
    """Gather rows into levels: their distinct confidences, or slices of each bin when many."""
    if adaptive:
        edges = binned.equal_mass_edges(confidence, bins)
    else:
        edges = binned.equal_width_edges(bins, confidence)
    levels, level = confidence.unique(return_inverse=True)
    if len(levels) > _CELLS:
        slices = -(-_CELLS // bins)
        steps = torch.arange(slices, dtype=torch.float64, device=edges.device) / slices
        starts = edges[:-1].double()
        fine = (starts[:, None] + (edges[1:].double() - starts)[:, None] * steps).flatten()
        fine = fine.to(edges.dtype)
        level = torch.bucketize(confidence, fine[1:], right=edge == "left")
        within = torch.arange(len(fine), device=edges.device) // slices
    else:
        within = torch.bucketize(levels, edges[1:-1], right=edge == "left")
    size = 2 * len(within)
    key = level * 2 + correct
    counts = torch.bincount(key, minlength=size).double()
    mean = torch.bincount(key, confidence.double(), minlength=size) / counts.clamp(min=1)
    return Cells(counts.view(-1, 2), mean.view(-1, 2), within)


def bin_sums(cells: Cells, bins: int) -> binned.BinSums:
    """Return the bin sums of each replica, (..., bins)."""
    member = torch.nn.functional.one_hot(cells.bins, bins).double()  # (levels, bins)
    summed = (cells.counts * cells.confidence).sum(-1)
    return binned.BinSums(
        cells.counts.sum(-1) @ member, cells.counts[..., 1] @ member, summed @ member
    )


def with_claimed_hits(cells: Cells, bins: int) -> Cells:
    """Return the cells with hits as claimed in each bin whose gap may be chance.

    That is a gap within sqrt(log N) standard errors (the cut of Andrews & Soares 2010), the error
    being that of a calibrated bin, sqrt(c (1 - c) / n).
    """
    sums = bin_sums(cells, bins)
    mean = sums.confidence / sums.counts.clamp(min=1)
    noise = (mean * (1 - mean) / sums.counts.clamp(min=1)).clamp(min=0).sqrt()
    slack = cells.counts.sum().clamp(min=2).log().sqrt()
    chance = (sums.gaps().abs() <= slack * noise)[cells.bins, None]
    n = cells.counts.sum(-1, keepdim=True)
    claimed = (cells.counts * cells.confidence).sum(-1, keepdim=True) / n.clamp(min=1)
    hits = torch.cat([n * (1 - claimed), n * claimed], -1)
    return cells._replace(
        counts=torch.where(chance, hits, cells.counts),
        confidence=torch.where(chance, claimed, cells.confidence),
    )


def error_along(sums: binned.BinSums, replicas: binned.BinSums, norm: float) -> Tensor:
    """Return the error of replicas with the direction of the gaps held as in `sums`.

    sum_b share_b w_b gap_b with the weights w that make it the error of `sums` itself: linear in
    the replicas' gaps, so without the bias that their absolute values have, and never above it.
    Gaps that are all 0 have no direction: then replicas err by all of their size, downwards.
    """
    gaps, error = sums.gaps(), binned.error_of(sums, norm)
    if error == 0:
        return -binned.error_of(replicas, norm)
    if norm == math.inf:
        top = gaps.abs().argmax()
        return gaps[top].sign() * replicas.gaps()[..., top]
    weights = torch.where(gaps < 0, -1.0, 1.0).double() if norm == 1 else gaps / error
    return (replicas.shares() * replicas.gaps()) @ weights


def debiased_on_cells(cells: Cells, bins: int = 15, edge: str = "right", norm: float = 1) -> Tensor:
    return debiased.debiased_error_of(bin_sums(cells, bins), norm)


def gather_ranks(score: Tensor, correct: Tensor) -> Tensor:
    """Count wrong and right rows at each score, or in slices of equally many rows when many.

    Slices of ranks stay fine wherever scores crowd; equal scores are never split. (levels, 2).
    """
    levels, level = score.unique(return_inverse=True)
    counts = torch.bincount(level * 2 + correct, minlength=2 * len(levels)).view(-1, 2)
    if len(levels) <= _CELLS:
        return counts
    below = counts.sum(1).cumsum(0) - counts.sum(1)
    return counts.new_zeros(_CELLS, 2).index_add_(0, below * _CELLS // len(score), counts)


def auroc_of_ranks(counts: Tensor) -> Tensor:
    return ranking.auroc_of_counts(counts[..., 1], counts[..., 0])


def aurc_of_ranks(counts: Tensor) -> Tensor:
    """Sum (H + j a) / (K + j), j = 1 .. n, down the levels: n a + (H - K a) (psi - psi)."""
    counts = counts.flip(-2)
    n, hits = counts.sum(-1), counts[..., 1]
    a = hits / n.clamp(min=1)
    before, hits_before = n.cumsum(-1) - n, hits.cumsum(-1) - hits
    spread = torch.digamma(before + n + 1) - torch.digamma(before + 1)
    area = (hits + (hits_before - before * a) * spread).sum(-1)
    return 1 - area / n.sum(-1)


def gather_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return distinct values and how often each occurs, or the means and sizes of slices when many.

    A slice holds an equal part of the rows and of their distance from the mean together, so that
    rare values far out, which make most of the variance, stay by themselves.
    """
    levels, counts = values.unique(return_counts=True)
    if len(levels) <= _CELLS:
        return levels, counts
    far = counts * (levels - values.mean()).abs()
    reach = (counts / len(values) + far / far.sum()).cumsum(0)  # up to 2
    level = (reach * (_CELLS / 2)).long().unique_consecutive(return_inverse=True)[1]
    sizes = torch.bincount(level, counts.double())
    return torch.bincount(level, counts * levels) / sizes, sizes
