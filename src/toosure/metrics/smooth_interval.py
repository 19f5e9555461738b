"""The interval of smECE: the noise of a smoothed gap, drawn as Gaussians on a grid."""

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

MIN_GRID = 128
MAX_GRID = 4096
NODES_PER_WIDTH = 4
BLOCK = 250  # replicas smoothed at a time


class GridSums(NamedTuple):
    """Sums over the rows that lie nearest to each node of a grid on [0, 1], (nodes,)."""

    residual: np.ndarray  # of a_i - c_i
    squared: np.ndarray  # of (a_i - c_i)^2
    claimed: np.ndarray  # of c_i (1 - c_i), the variance of a calibrated row


def smece_ends(
    confidence: Tensor, correct: Tensor, width: float, level: float, seed: int, samples: int
) -> tuple[float, float]:
    """Return how far below and above smECE its interval reaches, given its own width.

    The area of an absolute gap is pushed up by noise, as a binned error is, and the interval bounds
    that bias in the same way (`confidence_interval`): the high end keeps the sign of the smoothed
    gap (no bias), the low end lets the gap be 0 wherever it lies within sqrt(log N) standard errors
    of 0 (the most bias). The width stays: a fixed point moves less than the area at a fixed width.
    """
    n = len(confidence)
    grid = 2 ** math.ceil(math.log2(NODES_PER_WIDTH / max(width, 1e-9)))
    grid = min(MAX_GRID, max(MIN_GRID, grid))
    sums = grid_sums(confidence, correct, grid)
    gap = smooth(sums.residual, width) / n
    rng = np.random.default_rng(seed)

    # With the signs held, the area is a mean over rows: its standard error is enough.
    signs = smooth(np.where(gap < 0, -1.0, 1.0) * trapezoid_weights(grid), width)
    variance = max(signs**2 @ sums.squared / n - (signs @ sums.residual / n) ** 2, 0.0)
    variance = max(variance, signs**2 @ sums.claimed / n)
    above = normal_quantile(0.5 + level / 2) * math.sqrt(variance / n)

    # Where the gap may be chance the noise is that of calibrated rows, elsewhere that of the rows.
    error = noise_at_nodes(sums.claimed, width, rng, samples).std(0) / n
    chance = np.abs(gap) <= math.sqrt(math.log(max(n, 2))) * error
    drift = np.where(chance, 0.0, gap)
    variances = np.where(chance, sums.claimed, sums.squared)
    replicas = np.abs(drift + noise_at_nodes(variances, width, rng, samples) / n)

    areas = replicas @ trapezoid_weights(grid) - np.abs(drift) @ trapezoid_weights(grid)
    return float(np.quantile(areas, 0.5 + level / 2)), above


def grid_sums(confidence: Tensor, correct: Tensor, grid: int) -> GridSums:
    """Sum residuals and variances at the nearest of grid + 1 nodes."""
    c = confidence.double().cpu().numpy()
    residual = correct.cpu().numpy() - c
    node = np.rint(c * grid).astype(np.int64)
    columns = (residual, residual**2, c * (1 - c))
    return GridSums(*(np.bincount(node, each, minlength=grid + 1) for each in columns))


def noise_at_nodes(
    variances: np.ndarray, width: float, rng: np.random.Generator, samples: int
) -> np.ndarray:
    """Return smoothed sums of Gaussians with these variances at the nodes, (samples, nodes)."""
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


def trapezoid_weights(grid: int) -> np.ndarray:
    """Return the weights of the nodes that integrate over [0, 1]."""
    weights = np.full(grid + 1, 1 / grid)
    weights[[0, -1]] /= 2
    return weights


def normal_quantile(share: float) -> float:
    """Return the quantile of a standard normal."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)
