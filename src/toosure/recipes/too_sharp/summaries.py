"""Numbers that summarise a run: peak and area of its training ECE, when it becomes small."""

import math
from collections.abc import Sequence

import numpy as np

from toosure.recipes.series import mean_and_std
from toosure.runs import Run

WINDOW = 0.05  # of a run: longer than the oscillation at the edge of stability
SMALL = 0.01  # a training ECE below which a run counts as calibrated in-sample


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred running mean of the finite values over `WINDOW` of the rows.

    At the edge of stability both quantities jump from row to row, so the largest single value is a
    matter of luck. At the ends the window is cut off.

    >>> smooth(np.array([0.0, 3.0, np.nan] * 20))[:3]
    array([1.5, 1. , 1.5])
    """
    reach = round(WINDOW * len(values) / 2)
    ones = np.ones(2 * reach + 1)
    finite = np.isfinite(values)
    sums = np.convolve(np.where(finite, values, 0.0), ones, "full")[reach : reach + len(values)]
    counts = np.convolve(finite.astype(float), ones, "full")[reach : reach + len(values)]
    result: np.ndarray = np.full(len(values), np.nan)
    np.divide(sums, counts, out=result, where=counts > 0)
    return result


def peak_ece(run: Run) -> float:
    """Return the largest training ECE after the start, whose ECE depends on the seed."""
    return float(np.nanmax(run.columns["train/ece"][1:]))


def mean_peak(runs: Sequence[Run]) -> float:
    """Return the mean of the peaks of several runs; NaN without one."""
    return mean_and_std([peak_ece(run) for run in runs])[0]


def peak_step(run: Run) -> int:
    """Return the step of the largest training ECE after the start.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20]), "train/ece": np.array([0.9, 0.2, 0.1])}
    >>> peak_step(Row(columns=columns))
    10
    """
    return int(run.columns["step"][1 + np.nanargmax(run.columns["train/ece"][1:])])


def ece_area(run: Run, until: float = math.inf) -> float:
    """Return the area under the training ECE up to a step, in steps.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20]), "train/ece": np.array([0.0, 0.2, 0.1])}
    >>> ece_area(Row(columns=columns))
    2.5
    """
    step = run.columns["step"]
    ece = run.columns["train/ece"]
    chosen = (step <= until) & np.isfinite(ece)
    return float(np.trapezoid(ece[chosen], step[chosen]))


def step_below(run: Run) -> float:
    """Return the first step after which the training ECE stays below `SMALL`; infinity if none.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20, 30]), "train/ece": np.array([0, 0.2, 0.009, 0.001])}
    >>> step_below(Row(columns=columns))
    20.0
    """
    step = run.columns["step"]
    above = np.flatnonzero(~(run.columns["train/ece"] < SMALL))  # NaN counts as above
    first = above[-1] + 1 if len(above) else 0
    return float(step[first]) if first < len(step) else math.inf


def last_finite(run: Run, key: str) -> float:
    """Return the last finite value of a quantity; the last row of a diverged run has none."""
    values = run.columns[key]
    return float(values[np.isfinite(values)][-1])


def value_at(run: Run, key: str, step: float) -> float:
    """Return a quantity at the last row up to a step."""
    rows = np.flatnonzero(run.columns["step"] <= step)
    return float(run.columns[key][rows[-1]])


def share_of_increases(run: Run, until: float = math.inf) -> float:
    """Return the share of measured intervals up to a step in which the training loss rises."""
    loss = run.columns["train/loss"]
    chosen = np.isfinite(loss) & (run.columns["step"] <= until)
    return float((np.diff(loss[chosen]) > 0).mean())
