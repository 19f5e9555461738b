"""What one run's training ECE and loss did: peak, area, when it settled, how often it rose."""

import math

import numpy as np

from toosure.runs import Run

SMALL = 0.01  # a training ECE below which a run counts as calibrated in-sample


def peak(run: Run) -> float:
    """Return the largest training ECE after the start (the start's is an accident of the seed)."""
    return float(np.nanmax(run.columns["train/ece"][1:]))


def area(run: Run, until: float = math.inf) -> float:
    """Return the area under the training ECE up to a step, in steps.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20]), "train/ece": np.array([0.0, 0.2, 0.1])}
    >>> area(Row(columns=columns))
    2.5
    """
    step, ece = run.columns["step"], run.columns["train/ece"]
    kept = (step <= until) & np.isfinite(ece)
    return float(np.trapezoid(ece[kept], step[kept]))


def settled(run: Run, below: float = SMALL) -> float:
    """Return the step from which on the training ECE stays below a value; infinity if never.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20, 30]), "train/ece": np.array([0, 0.2, 0.009, 0.001])}
    >>> settled(Row(columns=columns))
    20.0
    """
    step, ece = run.columns["step"], run.columns["train/ece"]
    above = np.flatnonzero(~(ece < below))
    if len(above) == 0:
        return float(step[0])
    return float(step[above[-1] + 1]) if above[-1] + 1 < len(step) else math.inf


def last(run: Run, key: str) -> float:
    """Return the last finite value of a quantity: a diverged run ends with a row without any."""
    values = run.columns[key]
    return float(values[np.isfinite(values)][-1])


def at_step(run: Run, key: str, step: float) -> float:
    """Return a quantity at the last row up to a step."""
    kept = np.flatnonzero(run.columns["step"] <= step)
    return float(run.columns[key][kept[-1]])


def rises(run: Run, until: float = math.inf) -> float:
    """Return the share of the measured intervals up to a step over which the training loss rose."""
    loss = run.columns["train/loss"]
    kept = np.isfinite(loss) & (run.columns["step"] <= until)
    return float((np.diff(loss[kept]) > 0).mean())
