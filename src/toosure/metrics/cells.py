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
    """
    gaps = sums.gaps()
    if norm == math.inf:
        top = gaps.abs().argmax()
        return gaps[top].sign() * replicas.gaps()[..., top]
    weights = gaps.sign() if norm == 1 else gaps / binned.error_of(sums, 2).clamp(min=1e-300)
    return (replicas.shares() * replicas.gaps()) @ weights


def debiased_on_cells(cells: Cells, bins: int = 15, edge: str = "right", norm: float = 1) -> Tensor:
    return debiased.debiased_error_of(bin_sums(cells, bins), norm)


def auroc_on_cells(cells: Cells) -> Tensor:
    return ranking.auroc_of_counts(cells.counts[..., 1], cells.counts[..., 0])


def aurc_on_cells(cells: Cells) -> Tensor:
    """Sum (H + j a) / (K + j), j = 1 .. n, down the levels: n a + (H - K a) (psi - psi)."""
    counts = cells.counts.flip(-2)
    n, hits = counts.sum(-1), counts[..., 1]
    a = hits / n.clamp(min=1)
    before, hits_before = n.cumsum(-1) - n, hits.cumsum(-1) - hits
    spread = torch.digamma(before + n + 1) - torch.digamma(before + 1)
    area = (hits + (hits_before - before * a) * spread).sum(-1)
    return 1 - area / n.sum(-1)
