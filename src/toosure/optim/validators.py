"""Validators of hyper-parameters (each rejects NaN) and of the names of arguments."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch.optim import Optimizer

from toosure.sentences import did_you_mean

P = ParamSpec("P")
T = TypeVar("T")
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


def check_base(base: object, refused: type) -> None:
    """Raise unless `base` is an optimizer class that steps with the current gradients.

    Subclasses of `refused` take their own passes.
    """
    if isinstance(base, Optimizer):
        kind = type(base).__name__
        from_torch = getattr(torch.optim, kind, None) is type(base)
        raise ValueError(
            "base is a class, which gets the other arguments, not an object: write "
            f"base={'torch.optim.' * from_torch}{kind}, lr=..."
        )

    if not callable(base):
        raise ValueError(
            f"base is a class of optimizer, such as torch.optim.SGD; got {base!r} (names are for "
            "the command line)"
        )

    arguments = inspect.signature(base.step).parameters if hasattr(base, "step") else {}
    needs_closure = "closure" in arguments and (
        arguments["closure"].default is inspect.Parameter.empty
    )
    if needs_closure or (isinstance(base, type) and issubclass(base, refused)):
        name = getattr(base, "__name__", base)
        raise ValueError(
            f"base must step with the gradients at hand; {name} wants to run the closure "
            "itself. Take one such as torch.optim.SGD or AdamW"
        )


def check_arguments(
    optimizer: type, base: Callable[..., object], arguments: Mapping[str, object]
) -> None:
    """Raise for an argument that neither an optimizer nor its base takes; name one that is near."""
    try:
        taken = inspect.signature(base).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values()):
        return

    own = [
        name
        for name, parameter in inspect.signature(optimizer).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD and name not in ("params", "base")
    ]
    of_base = [name for name in taken if name not in ("params", *own)]
    base_name = getattr(base, "__name__", str(base))
    takes = f"{', '.join(own)}, and for {base_name} {', '.join(of_base)}"
    for name in arguments:
        if name not in of_base:
            raise unknown_argument(optimizer, name, [*own, *of_base], takes)


def refuse_unknown_arguments(
    init: Callable[Concatenate[T, P], None],
) -> Callable[Concatenate[T, P], None]:
    """Decorate the `__init__` of an optimizer that passes no arguments on.

    An argument that it does not have is refused with one that is near, and a keyword without a
    default is asked for.
    """
    parameters = inspect.signature(init).parameters
    own = [name for name in parameters if name not in ("self", "params")]
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]

    @wraps(init)
    def checked(self: T, /, *positional: P.args, **arguments: P.kwargs) -> None:
        for name in arguments:
            if name not in (*own, "params"):
                raise unknown_argument(type(self), name, own, ", ".join(own))
        for name in needed:
            if name not in arguments:
                optimizer = type(self).__name__
                raise ValueError(f"{optimizer} needs {name}: {optimizer}(params, {name}=...)")
        init(self, *positional, **arguments)

    return checked


def unknown_argument(optimizer: type, name: str, known: Sequence[str], takes: str) -> ValueError:
    """Return the error for an argument that an optimizer does not take."""
    hint = did_you_mean(name, known, ".")
    return ValueError(f"{optimizer.__name__} has no argument {name!r}{hint} It takes {takes}")
