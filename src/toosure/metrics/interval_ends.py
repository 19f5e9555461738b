"""A value with its interval, and the two ends that come from replicas of the value."""

from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.inputs import check_level

ROUNDING = 1e-12  # sums of the same numbers in another order may differ by this much


class Interval(NamedTuple):
    """A value and the interval around it; the ends are NaN if it has no interval."""

    value: Tensor
    low: Tensor
    high: Tensor


def without_interval(value: Tensor) -> Interval:
    """Return a value with ends that are NaN."""
    nowhere = torch.full_like(value, torch.nan)
    return Interval(value, nowhere, nowhere)


def widened_to_value(interval: Interval) -> Interval:
    """Return the interval, widened to hold its value; NaN stays."""
    value, low, high = interval
    return Interval(value, torch.minimum(low, value), torch.maximum(high, value))


def union(first: Interval, second: Interval) -> Interval:
    """Return the first interval, widened to hold the second."""
    value, low, high = first
    return Interval(
        value, torch.minimum(low, second.low.to(low)), torch.maximum(high, second.high.to(high))
    )


def quantiles(offsets: Tensor, level: float) -> Tensor:
    """Return the quantiles of the replicas that cut off (1 - level) / 2 on either side, (2, ..)."""
    check_level(level)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return offsets.double().cpu().nanquantile(tails, 0)


def interval_of_offsets(
    value: Tensor, offsets: Tensor, level: float, method: str = "auto", factor: float = 1.0
) -> Interval:
    """Return the interval around `value` from the replicas' offsets, replica minus value.

    "auto" is the "basic" interval, widened to hold the value. `factor` stretches the offsets.
    """
    lower, upper = factor * quantiles(offsets, level).to(value.device)
    if method == "percentile":
        return Interval(value, value + lower, value + upper)

    basic = Interval(value, value - upper, value - lower)
    return widened_to_value(basic) if method == "auto" else basic
