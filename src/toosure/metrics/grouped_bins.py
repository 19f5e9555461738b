"""Binned errors of rows that come in groups: sums over each group and bin, and their interval."""

import math

import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, error_of
from toosure.metrics.bootstrap_cells import error_with_fixed_signs
from toosure.metrics.group_draws import group_count, resampled_sums, small_sample_factor
from toosure.metrics.interval_ends import ROUNDING, Interval, quantiles, widened_to_value


def group_bin_sums(
    confidence: Tensor, correct: Tensor, groups: Tensor, edges: Tensor, edge: str
) -> Tensor:
    """Return counts, hits and summed confidences of each group and bin, (G, 3 bins)."""
    bins = len(edges) - 1
    count = group_count(groups)
    place = torch.bucketize(confidence, edges[1:-1], right=edge == "left").cpu()
    cell = groups.cpu() * bins + place

    columns = (torch.ones_like(cell), correct.cpu(), confidence.cpu())
    sums = [torch.bincount(cell, each.double(), minlength=count * bins) for each in columns]
    return torch.cat([each.view(count, bins) for each in sums], 1)


def sums_and_replicas(per_group: Tensor, seed: int, samples: int) -> tuple[BinSums, BinSums]:
    """Return the bin sums of all groups, (bins,), and of their replicas, (samples, bins)."""
    replicas = resampled_sums(per_group, seed, samples)
    return BinSums(*per_group.sum(0).chunk(3)), BinSums(*replicas.chunk(3, 1))


def interval_over_groups(
    value: Tensor, per_group: Tensor, norm: float, level: float, seed: int, samples: int
) -> Interval:
    """Return a binned error over G groups with an interval that bounds the bias.

    As for independent rows, the high end keeps the sign of every gap. For the low end, each gap
    within sqrt(log G) of its standard error over groups is taken as 0. The low end is 0 itself
    where groups without any gap show such an error by chance.
    """
    sums, replicas = sums_and_replicas(per_group, seed, samples)
    plain = error_of(sums, norm)
    factor = small_sample_factor(len(per_group), level)
    above = error_with_fixed_signs(sums, replicas, norm) - plain

    spread = replicas.gaps().std(0)
    cut = math.sqrt(math.log(len(per_group)))
    gaps = sums.gaps() * (sums.gaps().abs() <= cut * spread)
    below = error_of(without_gaps(replicas, gaps), norm) - error_of(without_gaps(sums, gaps), norm)

    low = plain - factor * quantiles(below, level)[1]
    high = plain - factor * quantiles(above, level)[0]
    by_chance = error_of(without_gaps(replicas, sums.gaps()), norm)
    if plain <= factor * quantiles(by_chance, level)[1] + ROUNDING:
        low = torch.zeros_like(low)
    return widened_to_value(Interval(value.cpu().double(), low.clamp(min=0), high.clamp(max=1)))


def without_gaps(sums: BinSums, gaps: Tensor) -> BinSums:
    """Take the gaps away from the mean confidence of the bins: only noise is left."""
    return sums._replace(confidence=sums.confidence - sums.counts * gaps)
