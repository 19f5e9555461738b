"""Warnings from the rows of a run: numbers that cannot be relied on."""

from collections.abc import Mapping

import numpy as np

GAVE_UP = "the controller gave up: its moves worked the wrong way round, or too little"
FEW_EXAMPLES = 200  # of a control split: with fewer, its standard error hides what is steered by
NOISY = (
    "the control split has {} examples: what the controller saw is mostly noise; give it more than "
    "{}, as in `--control radius:size=300`, or steer on more data"
)
AT_BOUND = "the controller is at its bound: it does not reach what it steers to"


def row_warnings(columns: Mapping[str, np.ndarray], last: Mapping[str, object]) -> list[str]:
    """Return a sentence for each number that did not converge, and for a controller that failed.

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
    if last.get("control/at_bound") == 1 and not within_band(last):
        warnings.append(AT_BOUND)
    return warnings


def noisy_split(examples: int) -> str:
    """Say that a control split is too small to steer by."""
    return NOISY.format(examples, FEW_EXAMPLES)


def within_band(last: Mapping[str, object]) -> bool:
    """Whether the controller's last error was in its dead band, so that its bound is right."""
    error = last.get("control/log_temperature", last.get("control/gap"))
    last_numbers = [error, last.get("control/band"), last.get("control/standard_error")]
    numbers = [each for each in last_numbers if isinstance(each, int | float)]
    if len(numbers) < len(last_numbers):
        return False
    value, band, standard_error = numbers
    return abs(value) <= band * standard_error
