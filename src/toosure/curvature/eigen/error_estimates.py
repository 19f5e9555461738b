"""Estimate how far a Ritz value is from its eigenvalue, from residuals and gaps."""

import numpy as np

SAFETY = 3.0  # the residual estimate understates the error up to 2.3 times: docs/curvature.md
MIN_GAP = 0.05  # relative gap below which the residual alone is believed
MAX_CLUSTER = 3  # values that may lie close together
TINY = float(np.finfo(np.float64).tiny)


def estimated_error(
    residual: float,
    values: np.ndarray,
    index: int,
    known_gap: float = 0.0,
    width: float = 0.0,
) -> float:
    """Estimate the relative error of a Ritz value: 3 min(r, r^2 / gap) / value.

    If the gap to the nearest value is small, r alone counts. `known_gap` is a relative gap used if
    there is only one value. `width` is the residual of the next pair: its eigenvalue may be larger
    by `width`.
    """
    if not np.isfinite(residual):
        return float("inf")

    gaps = np.abs(values - values[index])
    if index + 1 < len(values):
        gaps[index + 1] -= width
    gap = np.delete(gaps, index).min() if len(values) > 1 else known_gap * abs(values[index])

    is_close = gap <= MIN_GAP * abs(values[index])
    bound = residual if is_close else min(residual, residual**2 / gap)
    return float(SAFETY * bound / max(abs(values[index]), TINY))


def clustered_error(residuals: np.ndarray, values: np.ndarray) -> float:
    """Estimate the relative error of the first of several clustered Ritz values.

    The first two or three vectors span the space of a cluster. The sum of r^2 over them does not
    depend on how they divide this space. The sum is divided by the gap to the next value, minus the
    residual of that value.
    """
    first = values[0]
    bound = np.inf
    for count in range(2, min(MAX_CLUSTER, len(values) - 1) + 1):
        gap = first - values[count] - residuals[count]
        if gap > MIN_GAP * abs(first):
            bound = min(bound, (residuals[:count] ** 2).sum() / gap)
    return float(SAFETY * bound / max(abs(first), TINY))
