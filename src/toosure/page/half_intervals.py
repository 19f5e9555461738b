"""Values with their 95 % intervals, of normal and of few values."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toosure.quantiles import student_quantile


class PlusMinus(NamedTuple):
    """A value, often a difference, and half the width of its 95 % interval."""

    value: float
    half_width: float

    @property
    def is_chance(self) -> bool:
        """Whether the interval holds 0."""
        return not abs(self.value) > self.half_width


class ValueInterval(NamedTuple):
    """A value and the ends of its 95 % interval, which may be lopsided; NaN if unknown."""

    value: float
    low: float
    high: float

    @property
    def plus_minus(self) -> PlusMinus:
        """The value and the width of its interval towards 0, which decides whether it is chance.

        >>> ValueInterval(-0.03, -0.05, -0.02).plus_minus
        PlusMinus(value=-0.03, half_width=0.01)
        """
        side = self.high - self.value if self.value < 0 else self.value - self.low
        return PlusMinus(self.value, round(side, 12) if math.isfinite(side) else math.inf)


def mean_over_seeds(values: Sequence[PlusMinus]) -> PlusMinus:
    """Return the mean of what several seeds found; its interval includes the error of the examples.

    All seeds are judged on the same examples, so averaging them does not reduce that error.
    """
    found = np.array([[each.value] for each in values])
    error = math.sqrt(float(np.mean([each.half_width**2 for each in values])))
    return PlusMinus(float(found.mean()), math.hypot(error, float(interval_of_mean(found)[0])))


def interval_of_mean(values: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval (Student's t) of the mean over rows; 0 for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1])
    factor = student_quantile(0.975, rows - 1)
    return np.asarray(factor * values.std(axis=0, ddof=1) / np.sqrt(rows))
