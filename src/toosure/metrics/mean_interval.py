"""The interval of a mean over rows or groups: NLL, Brier score, entropy, accuracy."""

import torch
from torch import Tensor

from toosure.metrics.bootstrap_cells import Interval, group_values, quantiles, without_interval
from toosure.metrics.confidence import chunked_pairs
from toosure.metrics.group_draws import small_sample_factor
from toosure.metrics.inputs import row_numbers_of_all
from toosure.metrics.resampler import Resampler
from toosure.metrics.scores import RowScore


def interval_of_mean(value: Tensor, offsets: Tensor, count: int, level: float) -> Interval:
    """Return the hull of both textbook intervals: of a mean of skewed rows each errs to one side.

    Few rows or groups, of which there are `count`, vary too little when they are resampled
    (`small_sample_factor`); a single one has no interval.
    """
    if count < 2:
        return without_interval(value)
    lower, upper = quantiles(offsets, level).to(value.device)
    half = small_sample_factor(count, level) * torch.maximum(upper, -lower)
    return Interval(value, value - half, value + half)


def mean_and_rows(row_score: RowScore, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of a per-row score, as the metric itself sums it, and the score of each row.

    One pass over the logits serves both.
    """
    with row_numbers_of_all(logits):
        rows = [row_score(*pair) for pair in chunked_pairs(logits, labels)]
    total = torch.stack([each.sum(dtype=torch.float64) for each in rows]).sum()
    return total / len(logits), torch.cat(rows).double()


def mean_offsets_of_rows(values: Tensor, resampler: Resampler) -> Tensor:
    """Return resampled means less the mean; NaN where that is infinite."""
    if not values.mean().isfinite():
        return values.new_full((resampler.samples,), torch.nan)
    levels, counts = group_values(values)
    return resampler.cell_counts(counts) @ levels / len(values) - values.mean()
