"""Finite numbers: what JSON can carry, and what was read from it."""

import math
from collections.abc import Mapping
from typing import Any, TypeGuard


def json_ready(value: Any) -> Any:
    """Return a value as JSON carries it: plain numbers, and None for NaN and infinity.

    Lists and mappings are walked; numbers of numpy and torch become Python's, arrays lists.

    >>> json_ready({"ece": 0.25, "nll": [math.nan, 1]})
    {'ece': 0.25, 'nll': [None, 1]}
    """
    if isinstance(value, Mapping):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]

    if hasattr(value, "item"):
        try:
            value = value.item()
        except (RuntimeError, ValueError):  # of torch and numpy: there are several numbers
            return json_ready(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, neither a boolean nor NaN nor infinite.

    >>> is_finite_number(3), is_finite_number(math.nan), is_finite_number(True)
    (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def finite_number(value: object) -> float:
    """Return a finite number; raise ValueError on anything else."""
    if not is_finite_number(value):
        raise ValueError(f"not a finite number: {value!r}")
    return float(value)
