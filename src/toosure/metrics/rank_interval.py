"""Replicas of ranking metrics: rows are counted by rank, and the counts are resampled."""

from collections.abc import Callable

import torch
from torch import Tensor

from toosure.metrics.group_draws import group_count, resampled_sums
from toosure.metrics.ranking import auroc_of_counts
from toosure.metrics.resampler import Resampler

MAX_LEVELS = 512  # more distinct scores are merged into this many levels
MAX_GROUP_COUNTS = 1 << 23  # counts of all groups and levels that are held at a time


def rank_offsets(
    of_counts: Callable[[Tensor], Tensor],
    score: Tensor,
    correct: Tensor,
    resampler: Resampler,
    groups: Tensor | None = None,
) -> Tensor:
    """Return a ranking metric of each replica minus the metric of the rows, (samples,).

    `of_counts` is the metric as a function of wrong and right rows per level, (..., levels, 2).
    """
    if groups is None:
        counts = count_by_rank(score, correct)
        return of_counts(resampler.cell_counts(counts)) - of_counts(counts.double())

    count = group_count(groups)
    level, _ = rank_levels(score.cpu(), max(16, min(MAX_LEVELS, MAX_GROUP_COUNTS // (2 * count))))
    width = 2 * (int(level.max()) + 1)
    cell = groups.cpu() * width + level * 2 + correct.cpu()
    per_group = torch.bincount(cell, minlength=count * width).double().view(count, width)
    replicas = resampled_sums(per_group, *resampler).view(resampler.samples, -1, 2)
    return of_counts(replicas) - of_counts(per_group.sum(0).view(-1, 2))


def count_by_rank(score: Tensor, correct: Tensor) -> Tensor:
    """Count wrong and right rows at each level of the score, lowest first, (levels, 2)."""
    level, levels = rank_levels(score, MAX_LEVELS)
    return torch.bincount(level * 2 + correct, minlength=2 * levels).view(-1, 2)


def rank_levels(score: Tensor, max_levels: int) -> tuple[Tensor, int]:
    """Return the level of each row by its score, (N,), and how many levels there are.

    Many scores are merged into levels of equally many rows, which stay fine wherever scores crowd;
    equal scores are never split.
    """
    distinct, level = score.detach().unique(return_inverse=True)
    if len(distinct) <= max_levels:
        return level, len(distinct)

    sizes = torch.bincount(level)
    below = sizes.cumsum(0) - sizes
    return (below * max_levels // len(score))[level], max_levels


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
