"""How two series of one run go together: correlations that trends do and do not explain."""

from typing import NamedTuple

import numpy as np

RESAMPLES = 2000


class Coupling(NamedTuple):
    """Correlations of two series: of values, ranks, changes, given a third; an interval of r."""

    pearson: float
    spearman: float
    differences: float
    partial: float
    low: float
    high: float
    rows: int


def coupling(a: np.ndarray, b: np.ndarray, given: np.ndarray, seed: int = 0) -> Coupling:
    """Return every correlation of `a` and `b`; `given` is what the partial one holds fixed.

    Rows where one of the three is not finite are left out.

    >>> t = np.linspace(0, 1, 50)
    >>> found = coupling(t, t**2, np.sin(9 * t))
    >>> round(found.pearson, 3), round(found.spearman, 3), found.rows
    (0.967, 1.0, 50)
    """
    kept = np.isfinite(a) & np.isfinite(b) & np.isfinite(given)
    a, b, given = a[kept], b[kept], given[kept]
    low, high = block_interval(a, b, seed=seed)
    return Coupling(
        pearson(a, b), spearman(a, b), pearson(np.diff(a), np.diff(b)), partial(a, b, given),
        low, high, len(a),
    )  # fmt: skip


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's r, NaN where one series never changes or has fewer than three values."""
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's rho: Pearson's r of the ranks, ties sharing theirs."""
    from scipy.stats import rankdata

    return pearson(rankdata(a), rankdata(b))


def partial(a: np.ndarray, b: np.ndarray, given: np.ndarray) -> float:
    """Return the correlation of `a` and `b` that a line in `given` does not explain.

    Formula: (r_ab - r_ac r_bc) / sqrt((1 - r_ac^2)(1 - r_bc^2)).
    """
    ab, ac, bc = pearson(a, b), pearson(a, given), pearson(b, given)
    rest = (1 - ac**2) * (1 - bc**2)
    return float((ab - ac * bc) / np.sqrt(rest)) if rest > 1e-12 else float("nan")


def block_interval(
    a: np.ndarray,
    b: np.ndarray,
    block: int | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile interval of Pearson's r over resampled blocks of consecutive rows.

    Rows of a run resemble their neighbours, so whole blocks are drawn, around the end too
    (circular block bootstrap; Politis and Romano, 1992). `block` is sqrt(n) rows unless given.
    """
    n = len(a)
    if n < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan"), float("nan")
    length = min(n, block or max(1, round(n**0.5)))
    starts = np.random.default_rng(seed).integers(0, n, (resamples, -(-n // length)))
    places = (starts[:, :, None] + np.arange(length)) % n
    places = places.reshape(resamples, -1)[:, :n]
    found = row_pearson(a[places], b[places])
    tail = 50 * (1 - level)
    low, high = np.nanpercentile(found, [tail, 100 - tail])
    return float(low), float(high)


def row_pearson(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Pearson's r of each row of two arrays (R, n); NaN where a row is constant."""
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    scale = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), scale, out=np.full(len(a), np.nan), where=scale > 0)


def mean_and_spread(values: "list[float] | np.ndarray") -> tuple[float, float]:
    """Return mean and sample standard deviation of the finite values (NaN below one, two).

    >>> mean_and_spread([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    kept = np.asarray(values, dtype=float)
    kept = kept[np.isfinite(kept)]
    if len(kept) == 0:
        return float("nan"), float("nan")
    return float(kept.mean()), float(kept.std(ddof=1)) if len(kept) > 1 else float("nan")


def spread_text(values: "list[float] | np.ndarray", form: str = ".2f") -> str:
    """Print mean ± standard deviation, as the papers do.

    >>> spread_text([0.8, 0.9]), spread_text([0.5])
    ('0.85 ± 0.07', '0.50')
    """
    mean, spread = mean_and_spread(values)
    if not np.isfinite(mean):
        return "–"
    return f"{mean:{form}}" + (f" ± {spread:{form}}" if np.isfinite(spread) else "")
