"""The interval of a mean over rows or groups: NLL, Brier score, entropy, accuracy."""

import torch
from torch import Tensor

from toosure.metrics.confidence import chunked_pairs
from toosure.metrics.group_draws import (
    group_count,
    group_sums,
    resampled_sums,
    small_sample_factor,
)
from toosure.metrics.inputs import row_numbers_of_all
from toosure.metrics.interval_ends import (
    Interval,
    interval_of_offsets,
    quantiles,
    without_interval,
)
from toosure.metrics.resampler import Resampler
from toosure.metrics.scores import RowScore
from toosure.quantiles import student_quantile

MAX_VALUES = 512  # more distinct values are merged into about this many groups


def interval_of_mean(value: Tensor, offsets: Tensor, count: int, level: float) -> Interval:
    """Return the union of both textbook intervals: each errs to one side if rows are skewed.

    The `count` rows or groups vary too little when they are resampled, if they are few
    (`small_sample_factor`). A single one has no interval.
    """
    if count < 2:
        return without_interval(value)
    lower, upper = quantiles(offsets, level).to(value.device)
    half = small_sample_factor(count, level) * torch.maximum(upper, -lower)
    return Interval(value, value - half, value + half)


def student_interval(values: Tensor, level: float) -> Interval:
    """Return the mean of rows with Student's interval; a single row has none."""
    mean = values.mean()
    n = len(values)
    if n < 2:
        return without_interval(mean)
    half = student_quantile(0.5 + level / 2, n - 1) * values.std() / n**0.5
    return Interval(mean, mean - half, mean + half)


def mean_over_groups(
    values: Tensor, groups: Tensor, level: float, seed: int, samples: int
) -> Interval:
    """Return the mean over rows with the "basic" interval over groups."""
    offsets = mean_offsets(values, Resampler(seed, samples), groups)
    factor = small_sample_factor(group_count(groups), level)
    return interval_of_offsets(values.mean(), offsets, level, factor=factor)


def mean_and_rows(row_score: RowScore, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of a score, summed as in the metric itself, and the score of each row.

    Both come from one pass over the logits.
    """
    with row_numbers_of_all(logits):
        rows = [row_score(*pair) for pair in chunked_pairs(logits, labels)]
    total = torch.stack([each.sum(dtype=torch.float64) for each in rows]).sum()
    return total / len(logits), torch.cat(rows).double()


def mean_offsets(values: Tensor, resampler: Resampler, groups: Tensor | None = None) -> Tensor:
    """Return resampled means minus the mean, (samples,); NaN where the mean is infinite."""
    mean = values.mean()
    if not mean.isfinite():
        return values.new_full((resampler.samples,), torch.nan)
    if groups is None:
        levels, counts = group_values(values)
        return resampler.cell_counts(counts) @ levels / len(values) - mean

    per_group = group_sums(torch.stack([values, torch.ones_like(values)], 1), groups)
    total, count = resampled_sums(per_group, *resampler).unbind(1)
    return total / count - mean.cpu()


def group_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return distinct values and their counts, or means and sizes of groups if values are many.

    Each group has an equal part of the rows and of their distance from the mean together. So rare
    values far from the mean, which make most of the variance, keep a group of their own.
    """
    levels, counts = values.unique(return_counts=True)
    if len(levels) <= MAX_VALUES:
        return levels, counts

    distance = counts * (levels - values.mean()).abs()
    position = (counts / len(values) + distance / distance.sum()).cumsum(0)  # up to 2
    group = (position * (MAX_VALUES / 2)).long().unique_consecutive(return_inverse=True)[1]
    sizes = torch.bincount(group, counts.double())
    means = torch.bincount(group, counts * levels) / sizes

    # Groups lack the variance within them: stretch them about the mean to the variance of all rows.
    centre = values.mean()
    lost = values.var(correction=0) / (sizes @ (means - centre).square() / len(values))
    return centre + (means - centre) * lost.sqrt(), sizes
