"""Quantiles of the normal and Student's distribution, without torch and scipy, slow to import."""

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

MANY = 200  # degrees of freedom from which the expansion about the normal one is exact to 1e-9
EPSILON = 2.0**-52  # of float64


def normal_quantile(share: float) -> float:
    """Return the number below which the given share of a standard normal distribution lies.

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    return NormalDist().inv_cdf(share)


NORMAL_95 = normal_quantile(0.975)  # standard errors on either side in a 95 % interval


@lru_cache(maxsize=4096)
def student_quantile(share: float, freedom: int) -> float:
    """Return the number below which the given share of Student's distribution lies, from 1/2 on.

    >>> round(student_quantile(0.975, 1), 4), round(student_quantile(0.975, 10), 4)
    (12.7062, 2.2281)
    """
    if freedom < MANY:
        angle = root_of(
            lambda angle: share_within(angle, freedom) - (2 * share - 1), 0.0, math.pi / 2
        )
        return math.sqrt(freedom) * math.tan(angle)

    # Abramowitz & Stegun 26.7.5.
    z = normal_quantile(share)
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


def root_of(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that changes its sign is 0, to 1e-9, by Brent's method (1973).

    Step by step, and so bit for bit, `scipy.optimize.brentq`, which takes a quarter of a second to
    import.

    >>> round(root_of(lambda x: 2 - x * x, 1.0, 2.0), 9)
    1.414213562
    """
    before = other = low  # the point before, and one on the other side of the root
    current = high
    at_before = at_other = function(before)
    at_current = function(current)
    if at_before == 0:
        return before
    step = step_before = current - before

    while True:
        if (at_before < 0) != (at_current < 0) and at_current != 0:
            other = before
            at_other = at_before
            step = step_before = current - before
        if abs(at_other) < abs(at_current):  # the better of the two ends goes on
            before = current
            current = other
            other = before
            at_before = at_current
            at_current = at_other
            at_other = at_before

        tolerance = (1e-9 + 4 * EPSILON * abs(current)) / 2
        half = (other - current) / 2
        if at_current == 0 or abs(half) < tolerance:
            return current

        previous_step = step_before
        step_before = half
        next_step = half  # bisect, unless an interpolation is short enough
        if abs(previous_step) > tolerance and abs(at_current) < abs(at_before):
            tried = interpolated(before, at_before, current, at_current, other, at_other)
            if 2 * abs(tried) < min(abs(previous_step), 3 * abs(half) - tolerance):
                step_before = step
                next_step = tried
        step = next_step

        before = current
        at_before = at_current
        current += step if abs(step) > tolerance else math.copysign(tolerance, half)
        at_current = function(current)


def interpolated(
    before: float,
    at_before: float,
    current: float,
    at_current: float,
    other: float,
    at_other: float,
) -> float:
    """Return the step from `current` to where a line or an inverse parabola through them is 0."""
    if before == other:
        return -at_current * (current - before) / (at_current - at_before)
    slope_before = (at_before - at_current) / (before - current)
    slope_other = (at_other - at_current) / (other - current)
    along = at_other * slope_other - at_before * slope_before
    return -at_current * along / (slope_other * slope_before * (at_other - at_before))
