"""The settings of radius control: sensor, actuator, how often, and how far."""

import math
from dataclasses import dataclass
from typing import Literal

from toosure.control.actuators import ACTUATORS, Actuator, ActuatorName
from toosure.control.guard import AccuracyGuard, DirectionGuard
from toosure.control.integrator import Integrator
from toosure.control.sensor import GAINS, SENSORS, WORSE, SensorName
from toosure.metrics.inputs import check_choice

LOOK_SHARE = 0.03  # cost of looks, as a share of training's forward and backward passes
DEFAULT_INTERVAL = 50  # steps between looks if the batch size is unknown
MAX_LOOKS = 120  # of a run; with more, rho changes faster than the network can follow


@dataclass(frozen=True)
class Radius:
    """Steer rho of SAM by log T on a control split: a multiplicative integrator with a dead band.

    Formula: every `every` steps log rho <- log rho + gain * log T if |log T| is above `dead_band`
    standard errors. `actuator` is rho, gamma (of CSAM), both, or focal (the gamma of a focal loss);
    `sensor` is log_temperature or gap (confidence minus accuracy), with a default gain of 0.3 or 1.
    `size` examples are cut from the training data (by default 2,000, at most a tenth). Without
    `every`, looks cost at most 3 % of the passes, and a run has at most 120, because a network
    answers a move only after many steps. One look changes the actuator by at most the factor
    `rate`, all together by `span`. `final` is the gain at the end relative to the first half,
    `final_band` the dead band at the end (by default unchanged). The actuator moves only between
    `start` and `until`, shares of the run. If the accuracy falls by more than `guard` times its
    noise (`AccuracyGuard`), the last move is undone. If the error grows although the actuator moved
    by a factor of 4 against it, all these moves are undone (`DirectionGuard`), and nothing moves
    any more. `guard=inf` turns both off.

    `weights` is the network that is looked at: the raw one, or an average of the run. From the
    share `return_from` of the run on, the control split is trained on as well, and the actuator is
    held. Reference: docs/control.md.

    >>> Radius(gain=0.1).interval(size=2000, batch=256, passes=2, steps=5273)
    44
    """

    actuator: ActuatorName = "rho"
    sensor: SensorName = "log_temperature"
    size: int | None = None
    every: int | None = None
    gain: float | None = None
    dead_band: float = 2.0
    rate: float = 1.5
    span: float = 200.0
    final: float = 2.0
    final_band: float | None = None
    start: float = 0.05
    until: float = 1.0
    guard: float = 2.0
    weights: Literal["raw", "ema", "swa"] = "raw"
    return_from: float | None = None

    def __post_init__(self) -> None:
        check_choice("actuator", self.actuator, ACTUATORS)
        check_choice("sensor", self.sensor, tuple(SENSORS))
        check_choice("weights", self.weights, ("raw", "ema", "swa"))
        if self.gain is not None and not 0 < self.gain < math.inf:
            raise ValueError(f"gain must be above 0, and finite; got {self.gain}")
        for name in ("dead_band", "final_band"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is a number of standard errors; got {value}")
        for name in ("rate", "span"):
            if not 1 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is a factor above 1; got {getattr(self, name)}")
        if not 0 < self.final < math.inf:
            raise ValueError(f"final multiplies the gain, above 0; got {self.final}")

        if not 0 <= self.start < self.until <= 1:
            raise ValueError(
                f"start and until are shares of the run, 0 <= start < until <= 1; got {self.start} "
                f"and {self.until}"
            )
        if self.return_from is not None and not self.start < self.return_from < 1:
            raise ValueError(
                "return_from is the share of the run after which the control split is trained on, "
                f"between start ({self.start}) and 1; got {self.return_from}"
            )
        if not self.guard > 0:
            raise ValueError(f"guard is a number of spreads above 0; got {self.guard}")

        for name, smallest in (("size", 2), ("every", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            if not hasattr(value, "__index__") or value < smallest:
                raise ValueError(f"{name} is a whole number of at least {smallest}; got {value}")

    def interval(self, size: int, batch: int | None, passes: int, steps: int) -> int:
        """Return the steps between looks of a run; a step costs three forward passes per pass."""
        if self.every is not None:
            return self.every
        slow_enough = math.ceil(steps / MAX_LOOKS)
        if batch is None:
            return max(DEFAULT_INTERVAL, slow_enough)
        return max(math.ceil(size / (LOOK_SHARE * 3 * passes * batch)), slow_enough)

    def return_step(self, steps: int) -> int | None:
        """Return the step from which the control split is trained on; None for never."""
        return None if self.return_from is None else round(self.return_from * steps)

    def looks_after(self, step: int, steps: int) -> bool:
        """Whether a look after this step is allowed; not once the split is trained on."""
        return_step = self.return_step(steps)
        if return_step is not None and step > return_step:
            return False
        return self.start <= step / steps <= self.until

    def ever_looks(self, every: int, steps: int) -> bool:
        """Whether a run of `steps` steps has a look at all."""
        return any(self.looks_after(step, steps) for step in range(every, steps + 1, every))

    def integrator(self, actuator: Actuator) -> Integrator:
        """Return the controller of these settings, within the bounds of the actuator."""
        gain = GAINS[self.sensor] if self.gain is None else self.gain
        return Integrator(
            gain=gain,
            dead_band=self.dead_band,
            rate=self.rate,
            final=self.final,
            final_band=self.final_band,
            low=-math.log(self.span),
            high=math.log(min(self.span, actuator.highest())),
            guard=AccuracyGuard(self.guard),
            direction=DirectionGuard(WORSE[self.sensor] if self.guard < math.inf else math.inf),
        )


def checked_settings(settings: Radius | None, own_loop: bool) -> Radius:
    """Return the settings, or the defaults; raise on settings that are only for `toosure train`."""
    if settings is None:
        return Radius()
    if not isinstance(settings, Radius):
        raise TypeError(f"settings are Radius(gain=...); got {type(settings).__name__}")
    if own_loop and settings.size is not None:
        raise ValueError("size is for `toosure train`: here the control split is what you give")
    if own_loop and settings.weights != "raw":
        raise ValueError(
            f"weights={settings.weights} is for `toosure train`: here give predict=, which returns "
            "the logits of the average"
        )
    return settings
