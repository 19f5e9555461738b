"""The interval of smECE: the noise of the smoothed gap is drawn as Gaussians on a grid."""

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from toosure.metrics.group_draws import small_sample_factor
from toosure.metrics.interval_ends import ROUNDING, Interval
from toosure.quantiles import normal_quantile

MIN_GRID = 128
MAX_GRID = 4096
NODES_PER_WIDTH = 4
BLOCK = 250  # replicas smoothed at a time
MAX_GROUPS = 500  # sums at the nodes are held for each of them


class GridSums(NamedTuple):
    """Sums over the rows that lie nearest to each node of a grid on [0, 1], (nodes,)."""

    rows: np.ndarray  # how many
    confidence: np.ndarray
    residual: np.ndarray  # of a_i - c_i
    squared: np.ndarray  # of (a_i - c_i)^2
    variance: np.ndarray  # of c_i (1 - c_i), the variance of a calibrated row


def smece_interval(
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    level: float,
    seed: int,
    samples: int,
    bandwidth: float | None = None,
    groups: Tensor | None = None,
) -> Interval:
    """Return smECE with an interval that bounds the bias of an absolute gap."""
    width = float(value) if bandwidth is None else bandwidth
    if groups is None:
        below, above = smece_ends(confidence, correct, width, level, seed, samples)
    else:
        below, above = smece_ends_of_groups(
            confidence, correct, groups, width, level, seed, samples
        )
    return Interval(value, (value - below).clamp(min=0), (value + above).clamp(max=1))


def smece_ends(
    confidence: Tensor, correct: Tensor, width: float, level: float, seed: int, samples: int
) -> tuple[float, float]:
    """Return how far below and above smECE its interval reaches.

    Noise makes the area of an absolute gap larger, as it does a binned error, and the interval
    bounds that bias in the same way (`confidence_interval`). The high end keeps the sign of the
    smoothed gap: no bias. For the low end, the gap is 0 wherever it lies within sqrt(log N)
    standard errors of 0: the most bias. The low end is 0 where hits drawn from the confidences show
    such an area by chance. The width stays, since a fixed point moves less than the area at a fixed
    width.
    """
    n = len(confidence)
    grid = grid_of(width)
    sums = grid_sums(confidence, correct, grid)
    gap = smooth(sums.residual, width) / n
    rng = np.random.default_rng(seed)

    # With the signs fixed, the area is a mean over rows: its standard error is enough.
    signs = smooth(np.where(gap < 0, -1.0, 1.0) * trapezoid_weights(grid), width)
    variance = max(signs**2 @ sums.squared / n - (signs @ sums.residual / n) ** 2, 0.0)
    variance = max(variance, signs**2 @ sums.variance / n)
    above = normal_quantile(0.5 + level / 2) * math.sqrt(variance / n)

    by_chance = smooth(residuals_by_chance(sums, rng, samples), width) / n
    if area(gap) <= np.quantile(area(by_chance), 0.5 + level / 2) + ROUNDING:
        return math.inf, above

    # Where the gap may be chance, rows are as noisy as calibrated ones; elsewhere as they are.
    may_be_chance = np.abs(gap) <= math.sqrt(math.log(max(n, 2))) * by_chance.std(0)
    real_gap = np.where(may_be_chance, 0.0, gap)
    variances = np.where(may_be_chance, sums.variance, sums.squared)
    replicas = real_gap + noise_at_nodes(variances, width, rng, samples) / n
    return float(np.quantile(area(replicas), 0.5 + level / 2) - area(real_gap)), above


def smece_ends_of_groups(
    confidence: Tensor,
    correct: Tensor,
    groups: Tensor,
    width: float,
    level: float,
    seed: int,
    samples: int,
) -> tuple[float, float]:
    """Return what `smece_ends` does, where groups are independent and their rows are not.

    The residuals of each group are multiplied by its own Gaussian number (the wild bootstrap, Wu
    1986). Groups beyond `MAX_GROUPS` are merged: a union of independent groups is a group, too.
    """
    n = len(confidence)
    blocks = groups.cpu() % MAX_GROUPS
    grid = grid_of(width)
    sizes = np.bincount(blocks.numpy()).astype(np.float64)
    residuals = group_residuals(confidence, correct, blocks.numpy(), grid)
    gap = smooth(residuals.sum(0), width) / n
    factor = small_sample_factor(len(sizes), level)

    # With the signs fixed, the area is a mean over rows, of groups that differ in size.
    signs = smooth(np.where(gap < 0, -1.0, 1.0) * trapezoid_weights(grid), width)
    areas = residuals @ signs  # of each group
    deviations = areas - sizes * areas.sum() / n
    above = factor * normal_quantile(0.5 + level / 2) * math.sqrt(deviations @ deviations) / n

    weights = np.random.default_rng(seed).standard_normal((samples, len(sizes)))
    noise = smooth(weights @ residuals, width) / n
    if area(gap) <= factor * np.quantile(area(noise), 0.5 + level / 2) + ROUNDING:
        return math.inf, above

    # Where the gap is more than chance, it is no part of the noise of a group.
    may_be_chance = np.abs(gap) <= math.sqrt(math.log(len(sizes))) * noise.std(0)
    real_gap = np.where(may_be_chance, 0.0, gap)
    replicas = real_gap + noise - (weights @ sizes / n)[:, None] * real_gap
    excess = area(replicas) - area(real_gap)
    return factor * float(np.quantile(excess, 0.5 + level / 2)), above


def grid_of(width: float) -> int:
    """Return the number of steps of a grid on [0, 1] that is fine enough for a width."""
    steps = math.ceil(math.log2(NODES_PER_WIDTH / max(width, 1e-9)))
    return min(MAX_GRID, max(MIN_GRID, 1 << max(0, steps)))


def grid_sums(confidence: Tensor, correct: Tensor, grid: int) -> GridSums:
    """Sum residuals and variances at the nearest of grid + 1 nodes."""
    c = confidence.double().cpu().numpy()
    residual = correct.cpu().numpy() - c
    node = np.rint(c * grid).astype(np.int64)
    columns = (np.ones_like(c), c, residual, residual**2, c * (1 - c))
    return GridSums(*(np.bincount(node, each, minlength=grid + 1) for each in columns))


def group_residuals(
    confidence: Tensor, correct: Tensor, groups: np.ndarray, grid: int
) -> np.ndarray:
    """Return the sums of a_i - c_i of each group at the nodes, (G, grid + 1)."""
    c = confidence.double().cpu().numpy()
    count = int(groups.max()) + 1
    cell = groups * (grid + 1) + np.rint(c * grid).astype(np.int64)
    sums = np.bincount(cell, correct.cpu().numpy() - c, minlength=count * (grid + 1))
    return sums.reshape(count, grid + 1)


def residuals_by_chance(sums: GridSums, rng: np.random.Generator, samples: int) -> np.ndarray:
    """Draw hits from the confidences, and return hits minus confidence, (samples, nodes).

    Bröcker & Smith 2007. Exact also for a single row, where a Gaussian would not be.
    """
    (used,) = sums.rows.nonzero()
    rows = sums.rows[used].astype(np.int64)
    summed = sums.confidence[used]
    residuals = np.zeros((samples, len(sums.rows)))
    drawn = rng.binomial(rows, np.clip(summed / rows, 0, 1), (samples, len(used)))
    residuals[:, used] = drawn - summed
    return residuals


def noise_at_nodes(
    variances: np.ndarray, width: float, rng: np.random.Generator, samples: int
) -> np.ndarray:
    """Draw Gaussians with these variances at the nodes, and smooth them, (samples, nodes)."""
    spread = np.sqrt(variances)
    blocks = []
    for start in range(0, samples, BLOCK):
        drawn = rng.standard_normal((min(BLOCK, samples - start), len(spread)))
        blocks.append(smooth(drawn * spread, width))
    return np.concatenate(blocks)


def smooth(masses: np.ndarray, width: float) -> np.ndarray:
    """Smooth masses at the nodes of [0, 1] by the Gaussian reflected at 0 and 1, (..., nodes).

    Mirrored at both ends the masses are periodic; a mass at an end coincides with its image.
    """
    grid = masses.shape[-1] - 1
    mirrored = np.concatenate([masses, masses[..., -2:0:-1]], -1)
    mirrored[..., [0, grid]] *= 2

    k = math.pi * np.arange(grid + 1)
    damped = np.fft.rfft(mirrored) * np.exp(-0.5 * (width * k) ** 2)
    smoothed: np.ndarray = np.fft.irfft(damped, 2 * grid)[..., : grid + 1] * grid
    return smoothed


def area(gap: np.ndarray) -> np.ndarray:
    """Return the integral over [0, 1] of an absolute gap at the nodes, (...)."""
    total: np.ndarray = np.abs(gap) @ trapezoid_weights(gap.shape[-1] - 1)
    return total


def trapezoid_weights(grid: int) -> np.ndarray:
    """Return the weights of the nodes that integrate over [0, 1]."""
    weights = np.full(grid + 1, 1 / grid)
    weights[[0, -1]] /= 2
    return weights
