"""What a setting may be; NaN is nothing."""

import math
from collections.abc import Callable
from typing import Any

Limit = Callable[[str, Any], None]


def not_negative(name: str, value: Any) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must not be negative, and finite; got {value}")


def a_share(name: str, value: Any) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1]; got {value}")


def below_one(name: str, value: Any) -> None:
    """Check what is remembered of a moving average, or of each of several."""
    for each in value if isinstance(value, tuple | list) else (value,):
        if not 0 <= each < 1:
            raise ValueError(f"{name} must be in [0, 1); got {value}")


def check(limits: dict[str, Limit], settings: dict[str, Any]) -> None:
    """Raise for the first setting past its limit; those that are not there need none."""
    for name, limit in limits.items():
        if name in settings:
            limit(name, settings[name])
