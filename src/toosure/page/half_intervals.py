"""Values with half a 95 % interval on either side, of normal and of few values."""

from typing import NamedTuple

import numpy as np

from toosure.quantiles import student_quantile


class PlusMinus(NamedTuple):
    """A value, often a difference, and half its 95 % interval."""

    value: float
    half: float

    @property
    def is_chance(self) -> bool:
        """Whether the interval holds 0."""
        return not abs(self.value) > self.half


def half_interval_of_mean(values: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval of the mean over rows, after Student; 0 for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1])
    factor = student_quantile(0.975, rows - 1)
    return np.asarray(factor * values.std(axis=0, ddof=1) / np.sqrt(rows))
