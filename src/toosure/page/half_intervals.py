"""Values with their 95 % intervals, of normal and of few values."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toosure.quantiles import student_quantile


class PlusMinus(NamedTuple):
    """A value, often a difference, and half the width of its 95 % interval.

    Its parts, from the examples and from the spread over seeds, add in quadrature.
    """

    value: float
    half_width: float
    seeds_half: float = 0.0  # the part from seeds

    @property
    def is_chance(self) -> bool:
        """Whether the interval holds 0."""
        return not abs(self.value) > self.half_width

    @property
    def examples_half(self) -> float:
        """The part of the half width from the examples."""
        return math.sqrt(max(0.0, self.half_width**2 - self.seeds_half**2))

    @property
    def is_over_seeds(self) -> bool:
        """Whether the larger part of the interval is from seeds: more examples would not help."""
        return self.seeds_half > self.examples_half

    def ends(self, limit: float) -> tuple[float, float]:
        """Return the ends of the interval, within ±`limit`: what is possible; NaN if unknown.

        >>> PlusMinus(20.0, 90.0).ends(100.0)
        (-70.0, 100.0)
        """
        low, high = self.value - self.half_width, self.value + self.half_width
        return -limit if low < -limit else low, limit if high > limit else high

    def half_with(self, seeds: int, instead_of: int) -> float:
        """Return the half width to expect of so many seeds with the same spread.

        >>> round(PlusMinus(0.0, 10.0, 10.0).half_with(5, instead_of=2), 2)
        1.38
        """
        ratio = seeds_factor(seeds) / seeds_factor(instead_of)
        return math.hypot(self.examples_half, ratio * self.seeds_half)


class ValueInterval(NamedTuple):
    """A value and the ends of its 95 % interval, which may be lopsided; NaN if unknown."""

    value: float
    low: float
    high: float

    @property
    def plus_minus(self) -> PlusMinus:
        """The value and the width of its interval towards 0, which decides whether it is chance.

        >>> ValueInterval(-0.03, -0.05, -0.02).plus_minus
        PlusMinus(value=-0.03, half_width=0.01, seeds_half=0.0)
        """
        side = self.high - self.value if self.value < 0 else self.value - self.low
        return PlusMinus(self.value, round(side, 12) if math.isfinite(side) else math.inf)


def mean_over_seeds(values: Sequence[PlusMinus]) -> PlusMinus:
    """Return the mean of what several seeds found; its interval includes the error of the examples.

    All seeds are judged on the same examples, so averaging them does not reduce that error.
    """
    by_seed = np.array([[each.value] for each in values])
    error = math.sqrt(float(np.mean([each.half_width**2 for each in values])))
    seeds_half = float(interval_of_mean(by_seed)[0])
    return PlusMinus(float(by_seed.mean()), math.hypot(error, seeds_half), seeds_half)


def interval_of_mean(values: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval (Student's t) of the mean over rows; 0 for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1])
    return np.asarray(seeds_factor(rows) * values.std(axis=0, ddof=1))


def seeds_factor(seeds: int) -> float:
    """Return half the 95 % interval of a mean over seeds, in their standard deviations.

    >>> round(seeds_factor(2), 2), round(seeds_factor(5), 2)
    (8.98, 1.24)
    """
    return student_quantile(0.975, seeds - 1) / math.sqrt(seeds)


def more_seeds(seeds: int) -> int:
    """Return how many seeds to advise instead."""
    return max(5, 2 * seeds)
