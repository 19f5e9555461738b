"""Quantiles of Student's distribution, without scipy, which takes a second to import."""

import math
from statistics import NormalDist

from toosure.metrics.smooth import root_of

MANY = 200  # degrees of freedom from which the expansion about the normal one is exact to 1e-9


def student_quantile(share: float, freedom: int) -> float:
    """Return below what number the given share of Student's distribution lies, from 1/2 on.

    >>> round(student_quantile(0.975, 1), 4), round(student_quantile(0.975, 10), 4)
    (12.7062, 2.2281)
    """
    if freedom < MANY:
        angle = root_of(
            lambda angle: share_within(angle, freedom) - (2 * share - 1), 0.0, math.pi / 2
        )
        return math.sqrt(freedom) * math.tan(angle)

    # Abramowitz & Stegun 26.7.5.
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def share_within(angle: float, freedom: int) -> float:
    """Return P(|t| < sqrt(freedom) tan(angle)), a finite sum (Abramowitz & Stegun 26.7.3-4)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term

    within = math.sin(angle) * total
    return 2 / math.pi * (angle + within) if odd else within
