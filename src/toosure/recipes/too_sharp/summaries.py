"""Single numbers that summarise a run: peak and area of its training ECE, when it settled."""

import math

import numpy as np

from toosure.runs import Run

SMALL = 0.01  # a training ECE below which a run counts as calibrated in-sample


def peak_ece(run: Run) -> float:
    """Return the largest training ECE after the start (the start's is an accident of the seed)."""
    return float(np.nanmax(run.columns["train/ece"][1:]))


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


def settling_step(run: Run, below: float = SMALL) -> float:
    """Return the step from which on the training ECE stays below a value; infinity if never.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20, 30]), "train/ece": np.array([0, 0.2, 0.009, 0.001])}
    >>> settling_step(Row(columns=columns))
    20.0
    """
    step = run.columns["step"]
    above = np.flatnonzero(~(run.columns["train/ece"] < below))  # NaN counts as above
    first = above[-1] + 1 if len(above) else 0
    return float(step[first]) if first < len(step) else math.inf


def last_finite(run: Run, key: str) -> float:
    """Return the last finite value of a quantity: a diverged run ends with a row without any."""
    values = run.columns[key]
    return float(values[np.isfinite(values)][-1])


def value_at(run: Run, key: str, step: float) -> float:
    """Return a quantity at the last row up to a step."""
    rows = np.flatnonzero(run.columns["step"] <= step)
    return float(run.columns[key][rows[-1]])


def rising_share(run: Run, until: float = math.inf) -> float:
    """Return the share of the measured intervals up to a step over which the training loss rose."""
    loss = run.columns["train/loss"]
    chosen = np.isfinite(loss) & (run.columns["step"] <= until)
    return float((np.diff(loss[chosen]) > 0).mean())
