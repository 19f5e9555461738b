"""The actuators of a controller: SAM's radius, the gamma of CSAM or of a focal loss, or two.

On a GPU each value is a tensor that is changed in place, so that a recorded CUDA graph reads the
new value. On a CPU it stays a Python number.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.optim import Adadelta, Optimizer

from toosure.losses.focal import DualFocalLoss, FocalLoss
from toosure.metrics.inputs import check_choice
from toosure.optim import CSAM
from toosure.optim.wrapper import innermost

ActuatorName = Literal["rho", "gamma", "both", "focal"]
ACTUATORS: tuple[ActuatorName, ...] = get_args(ActuatorName)
Value = TypeVar("Value")
ROUNDING = 1e-5  # of a value that is kept in float32
MAX_GAMMA = 10.0  # papers use 0 to 2 for CSAM and up to 5 for focal losses


class Actuator(Protocol):
    """An interface to values that are multiplied by a factor; users may write their own."""

    def highest(self) -> float:
        """Return the largest factor that makes sense; infinity if there is none."""

    def set_factor(self, factor: float) -> None:
        """Set the values to `factor` times their start."""

    def values(self) -> dict[str, float]:
        """Return the values by their name in a row."""

    def state_dict(self) -> dict[str, list[float]]:
        """Return the values of the start."""

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restore the values of the start."""


class Multiple:
    """The common part of actuators: the values at the start, and the current factor."""

    name = ""
    max_value = math.inf

    def __init__(self, starts: Sequence[float]) -> None:
        if not starts or not any(value > 0 for value in starts):
            raise ValueError(
                f"control multiplies {self.name}, which never moves from 0: start it above 0"
            )
        if max(starts) > self.max_value:
            raise ValueError(
                f"control keeps {self.name} at {self.max_value:g} or below, but it starts at "
                f"{max(starts):g}: start it lower"
            )
        self.starts = list(starts)
        self.factor = 1.0

    def highest(self) -> float:
        return self.max_value / max(self.starts)

    def set_factor(self, factor: float) -> None:
        self.factor = factor
        self.write([min(start * factor, self.max_value) for start in self.starts])

    def write(self, values: Sequence[float]) -> None:
        """Store the values where the next step reads them."""
        raise NotImplementedError

    def read(self) -> list[float]:
        """Return the values that the next step reads."""
        raise NotImplementedError

    def overwritten(self) -> dict[str, tuple[float, float]]:
        """Return the first value that is not as it was set, and as it was set, by its name."""
        for start, value in zip(self.starts, self.read(), strict=False):
            own = min(start * self.factor, self.max_value)
            if not math.isclose(value, own, rel_tol=ROUNDING):
                return {self.name: (value, own)}
        return {}

    def values(self) -> dict[str, float]:
        first = next(start for start in self.starts if start > 0)  # a value of 0 does not move
        return {self.name: min(first * self.factor, self.max_value)}

    def state_dict(self) -> dict[str, list[float]]:
        return {self.name: self.starts}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        starts = list(state[self.name])
        if len(starts) != len(self.starts):
            raise ValueError(
                f"the state has {len(starts)} values of {self.name}, but this controller moves "
                f"{len(self.starts)}: make it for the same parameter groups or losses"
            )
        self.starts = starts


class Rho(Multiple):
    """Move the radius `rho` of every parameter group of an optimizer, all by the same factor.

    SAM and its variants have it, also most other implementations of SAM.
    """

    name = "rho"

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        groups = optimizer.param_groups
        if isinstance(innermost(optimizer), Adadelta):
            raise ValueError(
                "the rho of Adadelta is the decay of an average, not a radius: take sam, "
                "or control the gamma of a focal loss (actuator=focal)"
            )
        if any("rho" not in group for group in groups):
            raise ValueError(
                f"{type(optimizer).__name__} has no radius rho to control: take sam, csam, asam, "
                "vasso or bsam, or control the gamma of a focal loss (actuator=focal)"
            )
        super().__init__([float(group["rho"]) for group in groups])
        self.set_factor(1.0)

    def write(self, values: Sequence[float]) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(values):
            raise ValueError(
                f"control has {len(values)} radii, but the optimizer {len(groups)} parameter "
                "groups: make the controller after adding all groups"
            )
        for group, value in zip(groups, values, strict=True):
            group["rho"] = stored(group["rho"], value, group["params"][0].device)

    def read(self) -> list[float]:
        return [float(group["rho"]) for group in self.optimizer.param_groups]


class CSAMGamma(Multiple):
    """Move the gamma of CSAM, in the optimizer and in every criterion that it has made."""

    name = "gamma"
    max_value = MAX_GAMMA

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, CSAM):
            raise ValueError(
                f"{type(optimizer).__name__} has no gamma to control: take csam, or control rho"
            )
        self.optimizer = optimizer
        super().__init__([float(optimizer.gamma)])
        self.set_factor(1.0)

    def write(self, values: Sequence[float]) -> None:
        device = self.optimizer.param_groups[0]["params"][0].device
        self.optimizer.set_gamma(stored(self.optimizer.gamma, values[0], device))

    def read(self) -> list[float]:
        return [float(self.optimizer.gamma)]


class FocalGamma(Multiple):
    """Move the gamma of the focal or dual focal losses inside a criterion."""

    name = "gamma"
    max_value = MAX_GAMMA

    def __init__(self, criterion: nn.Module | None, device: torch.device) -> None:
        modules = criterion.modules() if criterion is not None else ()
        self.losses = [m for m in modules if isinstance(m, FocalLoss | DualFocalLoss)]
        if not self.losses:
            raise ValueError(
                "actuator=focal moves the gamma of a focal loss: take the loss focal or dual_focal "
                "(in your own loop, give it as criterion=)"
            )
        if any(isinstance(m.gamma, Tensor) and m.gamma.dim() for m in self.losses):
            raise ValueError("control moves one gamma, and this focal loss has one per example")

        self.device = device
        super().__init__([float(loss.gamma) for loss in self.losses])
        self.set_factor(1.0)

    def write(self, values: Sequence[float]) -> None:
        for loss, value in zip(self.losses, values, strict=True):
            loss.gamma = stored(loss.gamma, value, self.device)

    def read(self) -> list[float]:
        return [float(loss.gamma) for loss in self.losses]


class Joint:
    """Move several actuators by one factor, each within its bounds.

    An actuator at its bound stays there until the factor comes back. Two radii, of two optimizers,
    are `rho` and `rho_2` in rows and in the state.
    """

    def __init__(self, *actuators: Actuator) -> None:
        self.actuators = actuators

    def highest(self) -> float:
        return max(actuator.highest() for actuator in self.actuators)

    def set_factor(self, factor: float) -> None:
        for actuator in self.actuators:
            actuator.set_factor(min(factor, actuator.highest()))

    def overwritten(self) -> dict[str, tuple[float, float]]:
        """Return what `overwritten_values` finds in each actuator."""
        return joined([overwritten_values(actuator) for actuator in self.actuators])

    def values(self) -> dict[str, float]:
        return joined([actuator.values() for actuator in self.actuators])

    def state_dict(self) -> dict[str, list[float]]:
        return joined([actuator.state_dict() for actuator in self.actuators])

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        keys = iter(self.state_dict())
        for actuator in self.actuators:
            actuator.load_state_dict({name: state[next(keys)] for name in actuator.state_dict()})


def make_actuator(
    name: ActuatorName, optimizer: Optimizer, criterion: nn.Module | None = None
) -> Actuator:
    """Return the actuator of a name, bound to an optimizer or to the loss that it descends."""
    if name == "rho":
        return Rho(optimizer)
    if name == "gamma":
        return CSAMGamma(optimizer)
    if name == "focal":
        return FocalGamma(criterion, optimizer.param_groups[0]["params"][0].device)
    check_choice("actuator", name, ACTUATORS)
    return Joint(Rho(optimizer), CSAMGamma(optimizer))


def overwritten_values(actuator: Actuator) -> dict[str, tuple[float, float]]:
    """Return the values that something else has changed, and as they were set, by name.

    An actuator that a user has written is not asked.
    """
    return actuator.overwritten() if isinstance(actuator, Multiple | Joint) else {}


def joined(parts: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """Merge what several actuators have by name; a name that is taken gets a number.

    >>> joined([{"rho": 0.1}, {"rho": 0.2, "gamma": 1.0}])
    {'rho': 0.1, 'rho_2': 0.2, 'gamma': 1.0}
    """
    merged: dict[str, Value] = {}
    for part in parts:
        for name, value in part.items():
            free, number = name, 1
            while free in merged:
                number += 1
                free = f"{name}_{number}"
            merged[free] = value
    return merged


def stored(old: float | Tensor, value: float, device: torch.device) -> float | Tensor:
    """Return the storage of a value: a tensor on a GPU, changed in place, else a number."""
    if isinstance(old, Tensor) and old.device == device:
        return old.fill_(value)
    if device.type == "cuda":
        return torch.tensor(value, device=device)
    return value
