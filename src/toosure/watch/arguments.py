"""Check keyword arguments that `Watch` forwards to the curvature tracker."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from toosure.curvature import CurvatureTracker
from toosure.curvature.products.functional_model import as_patterns
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.sentences import did_you_mean

OWN = ("gather", "curvature_examples", "curvature_loss")  # those of the measurer and of its splits
# Arguments that the watch fills in itself.
GIVEN = {"self", "model", "data", "loss", "quantities", "options", "group"}


def check_arguments(names: Iterable[str], named: Callable[..., object]) -> None:
    """Raise on an argument that neither `named` nor the curvature tracker takes.

    >>> check_arguments(["rtol", "every_"], lambda model, every=20: None)
    Traceback (most recent call last):
    TypeError: there is no argument 'every_'; did you mean 'every'?
    """
    passed_on = {*arguments_of(CurvatureTracker), *arguments_of(LossCurvature), *OWN} - GIVEN
    for name in names:
        if name not in passed_on:
            known = {*arguments_of(named), *passed_on} - {"self"}
            hint = did_you_mean(name, sorted(known), f"; there are {sorted(passed_on)}", cutoff=0.6)
            raise TypeError(f"there is no argument {name!r}{hint}")


def arguments_of(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def with_names(settings: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """Return settings with `parameters` as names, because a copy of the model may be measured."""
    if settings.get("parameters") is None:
        return settings
    return {**settings, "parameters": as_patterns(model, settings["parameters"])}
