"""The interval of classwise ECE, which bounds the bias of absolute gaps as that of ECE does.

Class k and bin b have a sum of p - y over their rows, R_kb, and the error is made of |R_kb|. A row
has a part in the sums of every class, so that whole rows, or groups of rows, are drawn.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, equal_width_edges, error_of
from toosure.metrics.bootstrap_cells import error_along
from toosure.metrics.classwise import reduced
from toosure.metrics.confidence import probabilities
from toosure.metrics.group_draws import group_count, small_sample_factor
from toosure.metrics.inputs import ArrayLike, as_distributions
from toosure.metrics.interval_ends import ROUNDING, Interval, holding_value, quantiles

MAX_GROUPS = 500  # rows or groups whose sums are held; more are merged, which are independent, too
MAX_NUMBERS = 1 << 21  # sums of replicas at a time


class ClassBins(NamedTuple):
    """The probability of each class in each row, the bin it lies in, and the sums over rows."""

    probs: Tensor  # (N, C)
    rest: Tensor  # (N, C) p - y
    cell: Tensor  # (N, C) class times bins plus bin
    counts: Tensor  # (C, bins)
    residual: Tensor  # (C, bins) sums of p - y
    norm: float
    reduction: str

    def error(self, residual: Tensor) -> Tensor:
        """Return the error of sums of residuals (..., C, bins)."""
        zeros = torch.zeros_like(residual)
        sums = BinSums(self.counts.expand_as(residual), zeros, residual)
        return reduced(error_of(sums, self.norm), self.reduction)

    def error_along(self, residual: Tensor) -> Tensor:
        """Return the same of (S, C, bins) with the direction of every gap held: without bias."""
        zeros = torch.zeros_like(self.counts[0])
        classes = [
            error_along(
                BinSums(counts, zeros, home),
                BinSums(counts.expand_as(replicas), zeros, replicas),
                self.norm,
            )
            for counts, home, replicas in zip(
                self.counts, self.residual, residual.unbind(1), strict=True
            )
        ]
        return reduced(torch.stack(classes, -1), self.reduction)


def rows_of_classes(logits: Tensor, probs: ArrayLike | None) -> Tensor:
    """Return the probabilities (N, C) that classwise ECE bins, as they came or of logits."""
    if probs is not None:
        return as_distributions(probs).detach().clamp(max=1)
    return probabilities(logits)


def class_bins(
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
    rest = wide - torch.nn.functional.one_hot(labels.cpu(), wide.shape[1])
    cell = place + bins * torch.arange(wide.shape[1])

    def summed(values: Tensor) -> Tensor:
        size = bins * wide.shape[1]
        return torch.bincount(cell.flatten(), values.flatten(), size).view(-1, bins)

    counts = summed(torch.ones_like(wide))
    return ClassBins(wide, rest, cell, counts, summed(rest), norm, reduction)


def classwise_interval(
    value: Tensor,
    given: ClassBins,
    level: float,
    seed: int,
    samples: int,
    groups: Tensor | None = None,
) -> Interval:
    """Return classwise ECE with an interval that bounds the bias of absolute gaps."""
    if groups is None:
        return classwise_interval_over_rows(value, given, level, seed, samples)
    return classwise_interval_over_groups(value, given, groups, level, seed, samples)


def classwise_interval_over_rows(
    value: Tensor, given: ClassBins, level: float, seed: int, samples: int
) -> Interval:
    """Return classwise ECE with its interval, where rows are independent.

    A gap within sqrt(log N) standard errors of 0 may be chance: its noise is that of labels drawn
    from the probabilities, that of any other gap comes from the rows.
    """
    n = len(given.probs)
    variance = given.probs * (1 - given.probs)
    spread = torch.bincount(given.cell.flatten(), variance.flatten(), given.counts.numel())
    spread = spread.clamp(min=0).sqrt().view_as(given.counts)
    chance = given.residual.abs() <= math.sqrt(math.log(max(n, 2))) * spread
    drift = given.residual * ~chance

    per_row = group_residuals(given, torch.arange(n) % MAX_GROUPS)
    own = noise_of_groups(per_row, drift, seed, samples)
    claimed = noise_by_chance(given, seed, samples)
    blocks = (
        (torch.where(chance, redrawn, resampled), redrawn)
        for redrawn, resampled in zip(claimed, own, strict=True)
    )
    return interval_of_noise(value, given, drift, blocks, level)


def classwise_interval_over_groups(
    value: Tensor, given: ClassBins, groups: Tensor, level: float, seed: int, samples: int
) -> Interval:
    """Return the same where groups are independent and their rows are not.

    The residuals of each group are multiplied by a Gaussian number of its own (the wild bootstrap,
    Wu 1986).
    """
    blocks = groups.cpu() % MAX_GROUPS
    per_group = group_residuals(given, blocks)
    count = len(per_group.sizes)
    spread = per_group.sums.square().sum(0).sqrt()
    chance = given.residual.abs() <= math.sqrt(math.log(count)) * spread
    drift = given.residual * ~chance

    around = noise_of_groups(per_group, drift, seed, samples)
    about_zero = noise_of_groups(per_group, torch.zeros_like(drift), seed, samples)
    factor = small_sample_factor(count, level)
    noise = zip(around, about_zero, strict=True)
    return interval_of_noise(value, given, drift, noise, level, factor)


def interval_of_noise(
    value: Tensor,
    given: ClassBins,
    drift: Tensor,
    noise: Iterator[tuple[Tensor, Tensor]],
    level: float,
    factor: float = 1.0,
) -> Interval:
    """Return the interval from blocks of noise: of gaps that are partly real, and of none that is.

    The high end holds the direction of every gap; the low end takes the gaps that may be chance as
    0, and is 0 itself where chance alone shows such an error.
    """
    below, above, by_chance = [], [], []
    for around, about_zero in noise:
        below.append(given.error(drift + around) - given.error(drift))
        above.append(given.error_along(given.residual + around) - given.error(given.residual))
        by_chance.append(given.error(about_zero))

    down = factor * quantiles(torch.cat(below), level)[1].to(value.device)
    up = factor * quantiles(torch.cat(above), level)[0].to(value.device)
    most = factor * quantiles(torch.cat(by_chance), level)[1].to(value.device)
    low = torch.where(value <= most + ROUNDING, 0.0, (value - down).clamp(min=0))
    high = value - up
    if given.reduction != "sum":
        high = high.clamp(max=1)
    return holding_value(Interval(value, low, high))


class GroupResiduals(NamedTuple):
    """Sums of p - y of each row or group, and its number of rows."""

    sums: Tensor  # (G, C, bins)
    sizes: Tensor  # (G,)


def group_residuals(given: ClassBins, groups: Tensor) -> GroupResiduals:
    """Sum the residuals of each group by class and bin."""
    count = group_count(groups)
    size = given.counts.numel()
    cell = groups[:, None] * size + given.cell
    sums = torch.bincount(cell.flatten(), given.rest.flatten(), minlength=count * size)
    sizes = torch.bincount(groups, minlength=count).double()
    return GroupResiduals(sums.view(count, *given.counts.shape), sizes)


def blocks_of(samples: int, numbers: int) -> list[int]:
    """Return how many replicas of so many numbers are held at a time."""
    block = max(1, MAX_NUMBERS // numbers)
    return [min(block, samples - start) for start in range(0, samples, block)]


def noise_of_groups(
    per_group: GroupResiduals, drift: Tensor, seed: int, samples: int
) -> Iterator[Tensor]:
    """Yield the noise of sums (block, C, bins): of each group, less its share of a drift."""
    sizes = per_group.sizes / per_group.sizes.sum()
    centred = (per_group.sums - sizes[:, None, None] * drift).flatten(1)
    rng = np.random.default_rng(seed)
    for block in blocks_of(samples, centred.shape[1]):
        weights = torch.from_numpy(rng.standard_normal((block, len(sizes))))
        yield (weights @ centred).view(block, *drift.shape)


def noise_by_chance(given: ClassBins, seed: int, samples: int) -> Iterator[Tensor]:
    """Yield sums of p - y (block, C, bins) of labels drawn from the probabilities."""
    n, classes = given.probs.shape
    reached = given.probs.cumsum(1)[:, :-1].numpy()
    cell = given.cell.numpy()
    claimed = torch.bincount(given.cell.flatten(), given.probs.flatten(), given.counts.numel())
    rng = np.random.default_rng(seed)

    for block in blocks_of(samples, given.counts.numel()):
        hits = np.empty((block, given.counts.numel()))
        for replica in hits:
            labels = (reached < rng.random((n, 1))).sum(1)
            replica[:] = np.bincount(cell[np.arange(n), labels], minlength=len(replica))
        yield (claimed - torch.from_numpy(hits)).view(block, classes, -1)
