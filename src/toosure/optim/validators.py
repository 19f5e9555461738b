"""Validators of hyper-parameters; each rejects NaN."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Validator = Callable[[str, Any], None]  # raises unless the named setting may have this value


def check_not_negative(name: str, value: float) -> None:
    """Raise unless 0 <= value < infinity."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must not be negative, and finite; got {value}")


def check_fraction(name: str, value: float) -> None:
    """Raise unless 0 < value <= 1."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1]; got {value}")


def check_decay(name: str, value: float | Sequence[float]) -> None:
    """Raise unless the decay of a moving average, or each of several, is in [0, 1)."""
    decays = value if isinstance(value, tuple | list) else (value,)
    if not all(0 <= decay < 1 for decay in decays):
        raise ValueError(f"{name} must be in [0, 1); got {value}")


def check_settings(validators: Mapping[str, Validator], settings: Mapping[str, object]) -> None:
    """Raise for the first setting that its validator rejects; a missing setting is fine."""
    for name, validate in validators.items():
        if name in settings:
            validate(name, settings[name])
