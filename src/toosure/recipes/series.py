"""Statistics of measured series: correlations of two, mean and standard deviation of one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
NOTHING = "–"  # in the place of a number


class Correlations(NamedTuple):
    """Correlations of two series, and the bootstrap interval of Pearson's r."""

    pearson: float
    spearman: float
    differences: float  # Pearson's r of the changes from row to row
    partial: float  # Pearson's r with a third series held fixed
    low: float
    high: float
    rows: int


def correlate(a: np.ndarray, b: np.ndarray, control: np.ndarray) -> Correlations:
    """Return every correlation of `a` and `b`; the partial one holds `control` fixed.

    Rows in which one of the three is not finite are left out.

    >>> t = np.linspace(0, 1, 50)
    >>> result = correlate(t, t**2, np.sin(9 * t))
    >>> round(result.pearson, 3), round(result.spearman, 3), result.rows
    (0.967, 1.0, 50)
    """
    a, b, control = finite_rows(a, b, control)
    low, high = block_interval(a, b)
    return Correlations(
        pearson=pearson(a, b),
        spearman=spearman(a, b),
        differences=pearson(np.diff(a), np.diff(b)),
        partial=partial(a, b, control),
        low=low,
        high=high,
        rows=len(a),
    )


def finite_rows(*series: np.ndarray) -> list[np.ndarray]:
    """Return several series without the rows in which one of them is not finite.

    >>> finite_rows(np.array([1.0, np.nan, 3.0]), np.array([4.0, 5.0, 6.0]))
    [array([1., 3.]), array([4., 6.])]
    """
    finite = np.isfinite(series).all(0)
    return [values[finite] for values in series]


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's r; NaN if a series never changes or has fewer than three values."""
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's rho: Pearson's r of the ranks; equal values share their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(a), rankdata(b))


def partial(a: np.ndarray, b: np.ndarray, control: np.ndarray) -> float:
    """Return the correlation of `a` and `b` that a linear fit on `control` does not explain.

    Formula: (r_ab - r_ac r_bc) / sqrt((1 - r_ac^2)(1 - r_bc^2)).
    """
    ab = pearson(a, b)
    ac = pearson(a, control)
    bc = pearson(b, control)
    unexplained = (1 - ac**2) * (1 - bc**2)
    if not unexplained > 1e-12:  # NaN too
        return float("nan")
    return float((ab - ac * bc) / np.sqrt(unexplained))


def block_interval(
    a: np.ndarray,
    b: np.ndarray,
    block: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % interval of Pearson's r over resampled blocks of consecutive rows.

    Neighbouring rows of a run are alike, so whole blocks are drawn, also around the end (circular
    block bootstrap; Politis and Romano, 1992). `block` is sqrt(n) rows by default.
    """
    n = len(a)
    if n < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan"), float("nan")

    length = min(n, block or max(1, round(n**0.5)))
    starts = np.random.default_rng(seed).integers(0, n, (resamples, -(-n // length)))
    indices = (starts[:, :, None] + np.arange(length)) % n  # (resamples, blocks, length)
    indices = indices.reshape(resamples, -1)[:, :n]

    correlations = row_pearson(a[indices], b[indices])
    low, high = np.nanpercentile(correlations, [2.5, 97.5])
    return float(low), float(high)


def row_pearson(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Pearson's r of each row of two arrays (R, n); NaN for a constant row."""
    a = a - a.mean(1, keepdims=True)
    b = b - b.mean(1, keepdims=True)
    scale = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    result: np.ndarray = np.full(len(a), np.nan)
    np.divide((a * b).sum(1), scale, out=result, where=scale > 0)
    return result


def mean_and_std(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return mean and sample standard deviation of the finite values.

    The mean of no value and the deviation of a single value are NaN.

    >>> mean_and_std([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if len(finite) == 0:
        return float("nan"), float("nan")
    if len(finite) == 1:
        return float(finite.mean()), float("nan")
    return float(finite.mean()), float(finite.std(ddof=1))


def in_points(values: Iterable[float | None]) -> list[float | None]:
    """Return shares of 1 in points; None stays None."""
    return [None if value is None else 100 * value for value in values]


def mean_std_text(values: Sequence[float | None] | np.ndarray, form: str = ".2f") -> str:
    """Return mean ± standard deviation of the known values, as the papers print them.

    If some are None, the text also says how many are known.

    >>> mean_std_text([0.8, 0.9]), mean_std_text([0.5]), mean_std_text([0.8, 0.9], "+.2f")
    ('0.85 ± 0.07', '0.50', '+0.85 ± 0.07')
    >>> mean_std_text([0.5, None]), mean_std_text([None])
    ('0.50 (1 of 2)', '–')
    """
    known = [value for value in values if value is not None]
    mean, spread = mean_and_std(known)
    if not np.isfinite(mean):
        return NOTHING

    text = f"{mean:{form}}"
    if np.isfinite(spread):
        text += f" ± {spread:{form.lstrip('+')}}"
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)})"
