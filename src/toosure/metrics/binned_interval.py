"""Intervals of binned calibration errors, which bound the bias of absolute gaps."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, bin_edges, error_of
from toosure.metrics.bootstrap_cells import (
    Cells,
    bin_sums_of_cells,
    calibrated_cells,
    error_with_fixed_signs,
    gather_cells,
    with_calibrated_hits,
    with_imaginary_rows,
)
from toosure.metrics.grouped_bins import group_bin_sums, interval_over_groups
from toosure.metrics.interval_ends import ROUNDING, Interval, quantiles, widened_to_value
from toosure.metrics.resampler import Resampler


class BinnedError(NamedTuple):
    """A binned calibration error: its options, and the function of the bin sums."""

    norm: float
    bins: int = 15
    edge: str = "right"
    adaptive: bool = False
    of_sums: Callable[[BinSums, float], Tensor] = error_of

    def cells(self, confidence: Tensor, correct: Tensor) -> Cells:
        """Count rows by confidence level within these bins."""
        return gather_cells(confidence, correct, self.adaptive, self.bins, self.edge)

    def sums_and_replicas(self, cells: Cells, resampler: Resampler) -> tuple[BinSums, BinSums]:
        """Return the bin sums of the cells, (bins,), and of their replicas, (samples, bins)."""
        drawn = cells._replace(counts=resampler.cell_counts(cells.counts))
        return bin_sums_of_cells(cells, self.bins), bin_sums_of_cells(drawn, self.bins)


def binned_interval(
    error: BinnedError,
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    level: float,
    resampler: Resampler,
    groups: Tensor | None = None,
) -> Interval:
    """Return a binned error with an interval that bounds the bias of absolute gaps."""
    if groups is None:
        cells = error.cells(confidence, correct)
        return interval_over_rows(error, value, cells, level, resampler)

    edges = bin_edges(confidence, error.bins, error.adaptive)
    per_group = group_bin_sums(confidence, correct, groups, edges, error.edge)
    return interval_over_groups(value, per_group, error.norm, level, *resampler)


def binned_offsets(
    error: BinnedError, confidence: Tensor, correct: Tensor, resampler: Resampler
) -> Tensor:
    """Return a binned error of each replica minus the error of the rows, (samples,)."""
    sums, replicas = error.sums_and_replicas(error.cells(confidence, correct), resampler)
    return error.of_sums(replicas, error.norm) - error.of_sums(sums, error.norm)


def interval_over_rows(
    error: BinnedError, value: Tensor, cells: Cells, level: float, resampler: Resampler
) -> Interval:
    """Return a binned error of independent rows with an interval that bounds the bias.

    The low end is 0 where hits drawn from the confidences themselves show such an error by chance.
    """
    norm = error.norm
    if error.of_sums is not error_of:  # it estimates the plain error minus its bias
        plain = error_of(bin_sums_of_cells(cells, error.bins), norm).to(value)
        plain_error = error._replace(of_sums=error_of)
        interval = interval_over_rows(plain_error, plain, cells, level, resampler)
        return widened_to_value(interval._replace(value=value))

    # The high end keeps the sign of every gap: replicas without bias.
    sums, replicas = error.sums_and_replicas(with_imaginary_rows(cells, error.bins), resampler)
    above = error_with_fixed_signs(sums, replicas, norm) - error_of(sums, norm)
    high = value - quantiles(above, level)[0].to(value.device)

    # For the low end, every gap that may be chance is 0: replicas with the most bias.
    sums, replicas = error.sums_and_replicas(with_calibrated_hits(cells, error.bins), resampler)
    below = error_of(replicas, norm) - error_of(sums, norm)
    low = value - quantiles(below, level)[1].to(value.device)

    by_chance = quantiles(errors_by_chance(error, cells, resampler), level)[1]
    if float(value) <= float(by_chance) + ROUNDING:
        low = torch.zeros_like(low)

    if norm == math.inf:  # the largest gap is no smaller than the mean one
        mean = error_of(bin_sums_of_cells(cells, error.bins), 1).to(value)
        mean_interval = interval_over_rows(error._replace(norm=1), mean, cells, level, resampler)
        low = low.maximum(mean_interval.low)
    return widened_to_value(Interval(value, low.clamp(0, 1), high.clamp(0, 1)))


def errors_by_chance(error: BinnedError, cells: Cells, resampler: Resampler) -> Tensor:
    """Return the errors of hits that are drawn from the confidences, (samples,).

    Consistency resampling (Bröcker & Smith 2007): hits are binomial at every level of confidence.
    """
    calibrated = calibrated_cells(cells)
    n = calibrated.counts.sum(-1)
    rng = np.random.default_rng(resampler.seed)
    drawn = rng.binomial(
        n.round().long().cpu().numpy(),
        calibrated.confidence[:, 1].clamp(0, 1).cpu().numpy(),
        (resampler.samples, len(n)),
    )
    hits = torch.from_numpy(drawn).to(n)

    counts = torch.stack([n - hits, hits], -1)
    return error_of(bin_sums_of_cells(calibrated._replace(counts=counts), error.bins), error.norm)
