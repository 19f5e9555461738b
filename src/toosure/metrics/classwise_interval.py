"""The interval of classwise ECE, which bounds the bias of absolute gaps as the one of ECE does.

R_kb is the sum of p - y over the rows of class k and bin b, and the error is made of |R_kb|. A row
has a part in the sums of every class, so whole rows, or groups of rows, are drawn.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, equal_width_edges, error_of
from toosure.metrics.bootstrap_cells import error_with_fixed_signs
from toosure.metrics.classwise import reduced
from toosure.metrics.confidence import probabilities
from toosure.metrics.group_draws import group_count, small_sample_factor
from toosure.metrics.inputs import ArrayLike, as_distributions
from toosure.metrics.interval_ends import ROUNDING, Interval, quantiles, widened_to_value

MAX_GROUPS = 500  # more rows or groups are merged: unions of independent ones are independent
MAX_NUMBERS = 1 << 21  # sums of replicas at a time


class ClassBins(NamedTuple):
    """The probability of each class in each row, its bin, and sums over the rows of each bin."""

    probs: Tensor  # (N, C)
    residual: Tensor  # (N, C) p - y
    bin_index: Tensor  # (N, C) class times bins plus bin
    counts: Tensor  # (C, bins)
    residual_sums: Tensor  # (C, bins)
    norm: float
    reduction: str

    def error(self, residual_sums: Tensor) -> Tensor:
        """Return the error of sums of residuals (..., C, bins)."""
        zeros = torch.zeros_like(residual_sums)
        sums = BinSums(self.counts.expand_as(residual_sums), zeros, residual_sums)
        return reduced(error_of(sums, self.norm), self.reduction)

    def error_with_fixed_signs(self, replicas: Tensor) -> Tensor:
        """Return the error of replicas (S, C, bins) with the sign of every gap fixed: no bias."""
        zeros = torch.zeros_like(self.counts[0])
        errors = [
            error_with_fixed_signs(
                BinSums(counts, zeros, residual_sums),
                BinSums(counts.expand_as(of_class), zeros, of_class),
                self.norm,
            )
            for counts, residual_sums, of_class in zip(
                self.counts, self.residual_sums, replicas.unbind(1), strict=True
            )
        ]
        return reduced(torch.stack(errors, -1), self.reduction)


def rows_of_classes(logits: Tensor, probs: ArrayLike | None) -> Tensor:
    """Return the probabilities that classwise ECE bins, (N, C): `probs` as they came or softmax."""
    if probs is not None:
        return as_distributions(probs).detach().clamp(max=1)
    return probabilities(logits)


def bins_of_classes(
    probs: Tensor,
    labels: Tensor,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
    reduction: str = "mean",
) -> ClassBins:
    """Sort the probability of every class into bins."""
    edges = equal_width_edges(bins, probs)
    place = torch.bucketize(probs, edges[1:-1], right=edge == "left").cpu()
    wide = probs.double().cpu()
    residual = wide - torch.nn.functional.one_hot(labels.cpu(), wide.shape[1])
    bin_index = place + bins * torch.arange(wide.shape[1])

    def summed(values: Tensor) -> Tensor:
        size = bins * wide.shape[1]
        return torch.bincount(bin_index.flatten(), values.flatten(), size).view(-1, bins)

    counts = summed(torch.ones_like(wide))
    return ClassBins(wide, residual, bin_index, counts, summed(residual), norm, reduction)


def classwise_interval(
    value: Tensor,
    class_bins: ClassBins,
    level: float,
    seed: int,
    samples: int,
    groups: Tensor | None = None,
) -> Interval:
    """Return classwise ECE with an interval that bounds the bias of absolute gaps."""
    if groups is None:
        return classwise_interval_over_rows(value, class_bins, level, seed, samples)
    return classwise_interval_over_groups(value, class_bins, groups, level, seed, samples)


def classwise_interval_over_rows(
    value: Tensor, class_bins: ClassBins, level: float, seed: int, samples: int
) -> Interval:
    """Return classwise ECE with its interval, where rows are independent.

    A gap within sqrt(log N) standard errors of 0 may be chance: its noise comes from labels drawn
    from the probabilities. The noise of any other gap comes from the rows.
    """
    n = len(class_bins.probs)
    sums = class_bins.residual_sums
    variance = class_bins.probs * (1 - class_bins.probs)
    variances = torch.bincount(class_bins.bin_index.flatten(), variance.flatten(), sums.numel())
    spread = variances.clamp(min=0).sqrt().view_as(sums)
    may_be_chance = sums.abs() <= math.sqrt(math.log(max(n, 2))) * spread
    real_gap = sums * ~may_be_chance

    per_row = group_residuals(class_bins, torch.arange(n) % MAX_GROUPS)
    of_rows = noise_of_groups(per_row, real_gap, seed, samples)
    of_labels = noise_of_drawn_labels(class_bins, seed, samples)
    blocks = (
        (torch.where(may_be_chance, redrawn, resampled), redrawn)
        for redrawn, resampled in zip(of_labels, of_rows, strict=True)
    )
    return interval_of_noise(value, class_bins, real_gap, blocks, level)


def classwise_interval_over_groups(
    value: Tensor, class_bins: ClassBins, groups: Tensor, level: float, seed: int, samples: int
) -> Interval:
    """Return classwise ECE with its interval, where groups are independent and their rows are not.

    The residuals of each group are multiplied by its own Gaussian number (the wild bootstrap, Wu
    1986).
    """
    sums = class_bins.residual_sums
    per_group = group_residuals(class_bins, groups.cpu() % MAX_GROUPS)
    count = len(per_group.sizes)
    spread = per_group.sums.square().sum(0).sqrt()
    may_be_chance = sums.abs() <= math.sqrt(math.log(count)) * spread
    real_gap = sums * ~may_be_chance

    noise = noise_of_groups(per_group, real_gap, seed, samples)
    noise_of_no_gap = noise_of_groups(per_group, torch.zeros_like(real_gap), seed, samples)
    factor = small_sample_factor(count, level)
    blocks = zip(noise, noise_of_no_gap, strict=True)
    return interval_of_noise(value, class_bins, real_gap, blocks, level, factor)


def interval_of_noise(
    value: Tensor,
    class_bins: ClassBins,
    real_gap: Tensor,
    blocks: Iterator[tuple[Tensor, Tensor]],
    level: float,
    factor: float = 1.0,
) -> Interval:
    """Return the interval from blocks of noise: around the real gaps, and where no gap is real.

    The high end keeps the sign of every gap. The low end takes gaps that may be chance as 0, and is
    0 itself where chance alone shows such an error.
    """
    sums = class_bins.residual_sums
    below, above, by_chance = [], [], []
    for noise, noise_of_no_gap in blocks:
        below.append(class_bins.error(real_gap + noise) - class_bins.error(real_gap))
        above.append(class_bins.error_with_fixed_signs(sums + noise) - class_bins.error(sums))
        by_chance.append(class_bins.error(noise_of_no_gap))

    down = factor * quantiles(torch.cat(below), level)[1].to(value.device)
    up = factor * quantiles(torch.cat(above), level)[0].to(value.device)
    highest_by_chance = factor * quantiles(torch.cat(by_chance), level)[1].to(value.device)
    is_chance = value <= highest_by_chance + ROUNDING
    low = torch.where(is_chance, 0.0, (value - down).clamp(min=0))
    high = value - up
    if class_bins.reduction != "sum":
        high = high.clamp(max=1)
    return widened_to_value(Interval(value, low, high))


class GroupResiduals(NamedTuple):
    """Sums of p - y of each row or group, and its number of rows."""

    sums: Tensor  # (G, C, bins)
    sizes: Tensor  # (G,)


def group_residuals(class_bins: ClassBins, groups: Tensor) -> GroupResiduals:
    """Sum the residuals of each group by class and bin."""
    count = group_count(groups)
    size = class_bins.counts.numel()
    index = groups[:, None] * size + class_bins.bin_index
    sums = torch.bincount(index.flatten(), class_bins.residual.flatten(), minlength=count * size)
    sizes = torch.bincount(groups, minlength=count).double()
    return GroupResiduals(sums.view(count, *class_bins.counts.shape), sizes)


def block_sizes(samples: int, numbers: int) -> list[int]:
    """Split replicas into blocks that are held at a time, given the numbers in each replica."""
    block = max(1, MAX_NUMBERS // numbers)
    return [min(block, samples - start) for start in range(0, samples, block)]


def noise_of_groups(
    per_group: GroupResiduals, real_gap: Tensor, seed: int, samples: int
) -> Iterator[Tensor]:
    """Yield the noise of sums (block, C, bins), from what each group has beyond the real gaps."""
    shares = per_group.sizes / per_group.sizes.sum()
    centred = (per_group.sums - shares[:, None, None] * real_gap).flatten(1)
    rng = np.random.default_rng(seed)
    for block in block_sizes(samples, centred.shape[1]):
        weights = torch.from_numpy(rng.standard_normal((block, len(shares))))
        yield (weights @ centred).view(block, *real_gap.shape)


def noise_of_drawn_labels(class_bins: ClassBins, seed: int, samples: int) -> Iterator[Tensor]:
    """Yield sums of p - y (block, C, bins) of labels drawn from the probabilities."""
    n, classes = class_bins.probs.shape
    size = class_bins.counts.numel()
    reached = class_bins.probs.cumsum(1)[:, :-1].numpy()
    index = class_bins.bin_index.numpy()
    summed = torch.bincount(class_bins.bin_index.flatten(), class_bins.probs.flatten(), size)
    rng = np.random.default_rng(seed)

    for block in block_sizes(samples, size):
        hits = np.empty((block, size))
        for replica in hits:
            labels = (reached < rng.random((n, 1))).sum(1)
            replica[:] = np.bincount(index[np.arange(n), labels], minlength=size)
        yield (summed - torch.from_numpy(hits)).view(block, classes, -1)
