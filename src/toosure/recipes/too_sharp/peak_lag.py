"""How many steps ECE peaks before sharpness, with an interval.

Both series are smoothed by a running mean. The lag is the step of the largest smoothed sharpness
minus the step of the largest smoothed ECE. A maximum is not a mean: resampled rows would tear the
hump apart. So the smoothed series stay, and the residuals, which are the oscillation at the edge of
stability, are resampled in blocks of consecutive rows (moving block bootstrap of residuals; Kuensch
1989; for regression curves Buehlmann 1998). Both series use the same blocks, because they oscillate
together. Each resample is smoothed again and gives a lag; the interval is made of their
percentiles. Residuals near the peak are drawn from all rows within `NEAR` of it, since the
oscillation is larger where the curves are high.

A block is as long as the window of the running mean: faster oscillations lie inside one block, and
slower ones belong to the smoothed curve.
"""

from typing import NamedTuple

import numpy as np

from toosure.recipes.recipe import Table
from toosure.recipes.series import RESAMPLES, finite_rows, mean_and_std
from toosure.recipes.too_sharp.summaries import WINDOW, smooth
from toosure.runs import Run

LAG_HEADER = ("word", "lag, steps", "95 % interval")
NEAR = 0.5  # share of its height above which a row counts as near a peak


class Lag(NamedTuple):
    """Steps from the peak of ECE to the peak of sharpness, with a 95 % interval."""

    value: float
    low: float
    high: float


def lag_table(runs: list[Run]) -> Table:
    """Lay out the lag of every run with its interval, and the mean over runs."""
    lags = [run_lag(run) for run in runs]
    rows = [
        (run.config["optimizer"], f"{lag.value:,.0f}", f"{lag.low:,.0f} to {lag.high:,.0f}")
        for run, lag in zip(runs, lags, strict=True)
    ]
    if len(lags) > 1:
        mean, low, high = mean_interval([lag.value for lag in lags])
        rows.append(("mean of the runs", f"{mean:,.0f}", f"{low:,.0f} to {high:,.0f}"))

    note = (
        "Training split: the step of the largest smoothed sharpness minus that of the largest "
        "smoothed ECE; positive where ECE peaks first. Interval of a run: what the running mean "
        "took away is resampled in blocks as long as its window, the same for both series, 2,000 "
        "times, and smoothed again. Interval of the mean: Student's t over runs."
    )
    return Table("Lag from the peak of ECE to that of sharpness", LAG_HEADER, tuple(rows), note)


def mean_interval(values: list[float]) -> Lag:
    """Return the mean of several lags with its 95 % interval by Student's t.

    >>> [round(each, 1) for each in mean_interval([100.0, 200.0, 300.0])]
    [200.0, -48.4, 448.4]
    """
    from scipy.stats import t as student

    mean, deviation = mean_and_std(values)
    half = student.ppf(0.975, len(values) - 1) * deviation / len(values) ** 0.5
    return Lag(mean, float(mean - half), float(mean + half))


def run_lag(run: Run) -> Lag:
    """Return the lag between the peaks of one run's training ECE and sharpness."""
    columns = run.columns
    return peak_lag(columns["step"], columns["train/ece"], columns["train/gn_sharpness"])


def peak_lag(
    steps: np.ndarray,
    ece: np.ndarray,
    sharpness: np.ndarray,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Lag:
    """Return the lag of two series over equally spaced rows, with its interval.

    >>> steps = np.arange(0, 2000, 20)
    >>> hump = lambda at: np.exp(-(((steps - at) / 200) ** 2))
    >>> lag = peak_lag(steps, hump(600), hump(800), resamples=50)
    >>> lag.value, lag.low <= 200 <= lag.high
    (200.0, True)
    """
    steps, ece, sharpness = finite_rows(steps, ece, sharpness)
    series = np.stack([ece, sharpness])  # (2, n)
    if len(steps) < 3:
        return Lag(float("nan"), float("nan"), float("nan"))

    curves = np.stack([smooth(each) for each in series])
    first, second = curves.argmax(1)
    value = float(steps[second] - steps[first])

    blocks = residual_blocks(series, curves)
    generator = np.random.default_rng(seed)
    lags = [resampled_lag(steps, curves, blocks, generator) for _ in range(resamples)]
    low, high = np.percentile(lags, [2.5, 97.5])
    return Lag(value, float(low), float(high))


def residual_blocks(series: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Return the blocks of relative residuals to draw from: (blocks, 2, length).

    They are rows in which one of the curves is near its peak. Residuals are relative, since the
    oscillation grows with the height. Their mean is subtracted, or it would shift every resample.
    """
    n = series.shape[1]
    length = block_length(n)
    near = (curves >= NEAR * curves.max(1, keepdims=True)).any(0)
    scale = np.maximum(np.abs(curves), 1e-12 * np.abs(curves).max(1, keepdims=True))
    relative = (series - curves) / scale
    relative = relative - relative[:, near].mean(1, keepdims=True)

    starts = [i for i in range(n - length + 1) if near[i : i + length].all()]
    if not starts:  # a peak narrower than a block: take what lies around the higher one
        centre = int(curves[0].argmax())
        starts = [min(max(0, centre - length // 2), n - length)]
    return np.stack([relative[:, i : i + length] for i in starts])


def block_length(n: int) -> int:
    """Return the rows of a block: as many as the window of the running mean has."""
    return min(n, max(1, 2 * round(WINDOW * n / 2) + 1))


def resampled_lag(
    steps: np.ndarray, curves: np.ndarray, blocks: np.ndarray, generator: np.random.Generator
) -> float:
    """Add a drawn oscillation to the curves, smooth them again, and return their lag."""
    n = curves.shape[1]
    length = blocks.shape[2]
    chosen = generator.integers(0, len(blocks), -(-n // length) + 1)
    noise = np.concatenate(blocks[chosen], axis=1)  # (2, at least n + length)
    start = generator.integers(0, length)  # where the first block is cut, so that no row is fixed
    noise = noise[:, start : start + n]

    first, second = (int(smooth(each).argmax()) for each in curves * (1 + noise))
    return float(steps[second] - steps[first])
