"""Warnings from the rows of a run: numbers that cannot be relied on."""

import math
from collections.abc import Mapping

import numpy as np

GAVE_UP = "the controller gave up: its moves worked the wrong way round, or too little"
FEW_EXAMPLES = 200  # of a control split: with fewer, its standard error hides what is steered by
NOISY = (
    "the control split has {} examples: what the controller saw is mostly noise; give it more than "
    "{}, as in `--control radius:size=300`, or steer on more data"
)
AT_BOUND = "the controller is at its bound: it does not reach what it steers to"
FURTHER_ERRORS = 2.0  # standard errors beyond the dead band, from which an end is far outside


def row_warnings(
    columns: Mapping[str, np.ndarray], last: Mapping[str, object], has_ended: bool = False
) -> list[str]:
    """Return a sentence for each number that did not converge, and for a controller that failed.

    How far a controller is from its dead band is told of a run that `has_ended`.

    >>> row_warnings({"gni_unconverged": np.array([0.0, 1.0])}, {"control/at_bound": 0})
    ['gni did not converge in 1 of 2 rows']
    """
    warnings = []
    for key in sorted(columns):
        if key.endswith("_unconverged"):
            values = columns[key]
            count = np.count_nonzero(np.nan_to_num(values))
            name = key.removesuffix("_unconverged")
            warnings.append(f"{name} did not converge in {count:,} of {len(values):,} rows")

    examples = last.get("control/examples")
    if isinstance(examples, int | float) and examples < FEW_EXAMPLES:
        warnings.append(noisy_split(int(examples)))
    if last.get("control/gave_up") == 1:
        warnings.append(GAVE_UP)
    elif last.get("control/at_bound") == 1:
        warnings += [] if within_band(last) else [AT_BOUND]
    elif has_ended and is_far_outside(*(numbers := last_look(last))):
        warnings.append(far_outside("the controller", *numbers))
    return warnings


def noisy_split(examples: int) -> str:
    """Say that a control split is too small to steer by."""
    return NOISY.format(examples, FEW_EXAMPLES)


def within_band(last: Mapping[str, object]) -> bool:
    """Whether the controller's last error was in its dead band, so that its bound is right."""
    error, standard_error, band = last_look(last)
    return abs(error) <= band * standard_error


def last_look(last: Mapping[str, object]) -> tuple[float, float, float]:
    """Return the error, its standard error and the dead band of a row; NaN where unknown."""
    error = last.get("control/log_temperature", last.get("control/gap"))
    numbers = (error, last.get("control/standard_error"), last.get("control/band"))
    value, standard_error, band = (
        float(each) if isinstance(each, int | float) else math.nan for each in numbers
    )
    return value, standard_error, band


def is_far_outside(error: float, standard_error: float, band: float) -> bool:
    """Whether an error is two more standard errors from 0 than its dead band reaches.

    >>> is_far_outside(0.51, 0.11, 2.0), is_far_outside(0.4, 0.11, 2.0)
    (True, False)
    """
    return standard_error > 0 and abs(error) > (band + FURTHER_ERRORS) * standard_error


def far_outside(who: str, error: float, standard_error: float, band: float) -> str:
    """Say how far outside its dead band a run ended, and what steers further."""
    how, start = ("too sure", "larger") if error > 0 else ("not sure enough", "smaller")
    narrower = ", final_band=0" if band > 0 else ""
    return (
        f"{who} ended outside its dead band: the network is {how} by {abs(error):.2f}, "
        f"{abs(error) / standard_error:.1f} standard errors, where {band:.3g} are left alone. Give "
        f"it more steps, a larger gain, a {start} start{narrower}, or fit a temperature"
    )
