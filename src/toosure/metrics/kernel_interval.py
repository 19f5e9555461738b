"""The interval of MMCE, the length of a mean of kernel functions: noise makes a length larger."""

from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.group_draws import group_count, small_sample_factor
from toosure.metrics.interval_ends import ROUNDING, Interval, quantiles
from toosure.metrics.kernel import pair_sum, root
from toosure.quantiles import normal_quantile


class SortedRows(NamedTuple):
    """Confidences in ascending order, a - c of each, and the group that it belongs to."""

    confidence: Tensor
    residual: Tensor
    groups: Tensor
    bandwidth: float

    def length(self, residual: Tensor) -> Tensor:
        """Return the MMCE of any residuals at these confidences."""
        return root(pair_sum(self.confidence, residual, self.bandwidth)) / len(residual)


def mmce_interval(
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    level: float,
    seed: int,
    samples: int,
    bandwidth: float = 0.4,
    groups: Tensor | None = None,
) -> Interval:
    """Return MMCE with an interval that bounds the bias of a length, over rows or groups.

    The high end keeps the direction of the mean of kernels: a length along one direction has no
    bias. The low end is 0 where noise alone is as long. Otherwise the residual of each row or group
    is multiplied by its own Gaussian number (the wild bootstrap, Wu 1986).
    """
    n = len(confidence)
    ordered, order = confidence.double().cpu().sort()
    index = torch.arange(n) if groups is None else groups.cpu()[order]
    rows = SortedRows(ordered, correct.cpu().double()[order] - ordered, index, bandwidth)
    factor = 1.0 if groups is None else small_sample_factor(group_count(index), level)
    generator = torch.Generator().manual_seed(seed)

    noise, replicas = [], []
    for _ in range(samples):
        weight = torch.randn(group_count(index), generator=generator, dtype=torch.float64)[index]
        drawn = weight * rows.residual
        replicas.append(rows.length(rows.residual + drawn))
        if groups is None:
            # Hits drawn from the confidences: the noise of calibrated rows.
            hits = torch.rand(n, generator=generator, dtype=torch.float64) < ordered
            drawn = hits.double() - ordered
        noise.append(rows.length(drawn))

    v = value.cpu().double()
    by_chance = factor * quantiles(torch.stack(noise), level)[1]
    low = v - factor * quantiles(torch.stack(replicas) - v, level)[1]
    if v <= by_chance + ROUNDING:
        low = torch.zeros_like(v)

    above = by_chance
    if v > ROUNDING:
        above = factor * normal_quantile(0.5 + level / 2) * standard_error_of_mmce(rows, v)
    return Interval(value, low.clamp(min=0).to(value), (v + above).to(value))


def standard_error_of_mmce(rows: SortedRows, value: Tensor) -> Tensor:
    """Return the standard error of MMCE with its direction fixed: then it is a mean over rows.

    Row i adds r_i (K r)_i / (N MMCE). The result is at least the error of calibrated rows.
    """
    n = len(rows.residual)
    residual = rows.residual.clone().requires_grad_()
    square = pair_sum(rows.confidence, residual, rows.bandwidth)
    pull = torch.autograd.grad(square, residual)[0] / (2 * n * value)

    deviations = torch.bincount(rows.groups, pull * rows.residual - value)
    calibrated = (pull.square() * rows.confidence * (1 - rows.confidence)).sum()
    return torch.maximum(deviations.square().sum(), calibrated).sqrt() / n
