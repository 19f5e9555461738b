"""Intervals of binned calibration errors, which bound the bias of absolute gaps."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, error_of
from toosure.metrics.bootstrap_cells import (
    Cells,
    Interval,
    bin_sums_of_cells,
    error_along,
    quantiles,
    with_claimed_hits,
)
from toosure.metrics.resampler import Resampler


class BinnedError(NamedTuple):
    """A binned calibration error: its options, and the function of the bin sums."""

    norm: float
    bins: int = 15
    edge: str = "right"
    adaptive: bool = False
    of_sums: Callable[[BinSums, float], Tensor] = error_of

    def sums_and_replicas(self, cells: Cells, resampler: Resampler) -> tuple[BinSums, BinSums]:
        """Return the bin sums of the cells, (bins,), and of their replicas, (samples, bins)."""
        drawn = cells._replace(counts=resampler.cell_counts(cells.counts))
        return bin_sums_of_cells(cells, self.bins), bin_sums_of_cells(drawn, self.bins)


def interval_of_gaps(
    error: BinnedError, value: Tensor, cells: Cells, level: float, resampler: Resampler
) -> Interval:
    """Return a binned error with an interval that bounds the bias of absolute gaps."""
    norm = error.norm

    # The high end holds the direction of every gap: replicas without bias.
    sums, replicas = error.sums_and_replicas(cells, resampler)
    above = error_along(sums, replicas, norm) - error_of(sums, norm)
    high = value - quantiles(above, level)[0].to(value.device)

    # The low end lets every gap that may be chance be 0: replicas with the most bias.
    sums, replicas = error.sums_and_replicas(with_claimed_hits(cells, error.bins), resampler)
    below = error_of(replicas, norm) - error_of(sums, norm)
    low = value - quantiles(below, level)[1].to(value.device)

    if norm == math.inf:  # the largest gap is no smaller than the mean one
        mean = error_of(bin_sums_of_cells(cells, error.bins), 1).to(value)
        mean_interval = interval_of_gaps(error._replace(norm=1), mean, cells, level, resampler)
        low = low.maximum(mean_interval.low)

    low = torch.minimum(low, value)
    high = torch.maximum(high, value)
    return Interval(value, low.clamp(0, 1), high.clamp(0, 1))
