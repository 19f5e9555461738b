"""Validators of hyper-parameters (each rejects NaN) and of the names of arguments."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
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


def check_arguments(
    optimizer: type, base: Callable[..., object], arguments: Mapping[str, object]
) -> None:
    """Raise for an argument that neither an optimizer nor its base takes; name one that is near."""
    try:
        taken = inspect.signature(base).parameters
    except (TypeError, ValueError):  # a callable that says nothing of its arguments
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values()):
        return

    own = [
        name
        for name, parameter in inspect.signature(optimizer).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD and name not in ("params", "base")
    ]
    of_base = [name for name in taken if name not in ("params", *own)]
    for name in arguments:
        if name not in of_base:
            near = get_close_matches(name, [*own, *of_base], 1)
            base_name = getattr(base, "__name__", str(base))
            raise ValueError(
                f"{optimizer.__name__} has no argument {name!r}"
                + (f" (did you mean {near[0]!r}?)" if near else "")
                + f": it takes {', '.join(own)}, and for {base_name} {', '.join(of_base)}"
            )
