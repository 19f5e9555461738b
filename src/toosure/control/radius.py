"""Radius control: steer SAM's radius (or a gamma) by how over-confident the network is."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.control.actuators import Actuator, ActuatorName, make_actuator
from toosure.control.guard import AccuracyGuard
from toosure.control.integrator import Integrator
from toosure.control.sensor import GAINS, Reading, SensorName, read
from toosure.optim import SAM
from toosure.processes.dtensor import processes_in, ranks_of, reduced
from toosure.watch.logits_model import as_logits_model, check_finite_inputs
from toosure.watch.probability_outputs import check_no_softmax
from toosure.watch.split import logits_of

LOOK_SHARE = 0.03  # of the forward and backward passes of training: what looks may cost
DEFAULT_INTERVAL = 50  # steps between looks where the size of a batch is not known


@dataclass(frozen=True)
class Radius:
    """Steer rho of SAM by log T on a control split: a multiplicative integrator with a dead band.

    Formula: every `every` steps log rho <- log rho + gain * log T where |log T| is above
    `dead_band` standard errors. `actuator` is rho, gamma (of CSAM), both, or focal (the gamma of a
    focal loss); `sensor` is log_temperature or gap (confidence minus accuracy), with a gain of 0.3
    or 1 where none is given. `size` examples are cut from the training data (without it 2,000, at
    most a tenth). Without `every`, looks are spaced so that they cost at most 3 % of the passes.
    One look changes the actuator by at most the factor `rate`, all of them by `span`; `final` is
    the gain at the end over that of the first half, `final_band` the dead band at the end (without
    it that of the first half). Nothing moves before `start` and after `until`, shares of the run.
    Where the accuracy falls by more than `guard` times what chance moves it (`AccuracyGuard`), the
    last move is undone.

    `weights` says which network is looked at: the raw one, or an average that the run follows.
    From the share `return_from` of the run on, the control split is trained on as well, and the
    actuator is held. Reference: docs/control.md.

    >>> Radius(gain=0.1).interval(size=2000, batch=256, passes=2)
    44
    """

    actuator: ActuatorName = "rho"
    sensor: SensorName = "log_temperature"
    size: int | None = None
    every: int | None = None
    gain: float | None = None
    dead_band: float = 2.0
    rate: float = 1.5
    span: float = 50.0
    final: float = 2.0
    final_band: float | None = None
    start: float = 0.05
    until: float = 1.0
    guard: float = 2.0
    weights: Literal["raw", "ema", "swa"] = "raw"
    return_from: float | None = None

    def __post_init__(self) -> None:
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
            if value is not None and value < smallest:
                raise ValueError(f"{name} must be at least {smallest}; got {value}")

    def interval(self, size: int, batch: int | None, passes: int) -> int:
        """Return the steps between looks; a step costs three forward passes per pass."""
        if self.every is not None:
            return self.every
        if batch is None:
            return DEFAULT_INTERVAL
        return max(1, math.ceil(size / (LOOK_SHARE * 3 * passes * batch)))

    def return_step(self, steps: int) -> int | None:
        """Return after how many of a run's steps the control split is trained on; None: never."""
        return None if self.return_from is None else round(self.return_from * steps)

    def looks_after(self, step: int, steps: int) -> bool:
        """Whether a look that is due after a step is taken; none once the split is trained on."""
        return_step = self.return_step(steps)
        if return_step is not None and step > return_step:
            return False
        return self.start <= step / steps <= self.until

    def integrator(self, actuator: Actuator) -> Integrator:
        """Return the controller of these settings, bounded by what the actuator can do."""
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
        )


class RadiusControl:
    """Control a training loop: call `step()` after every step of the optimizer.

    `control` is inputs and labels that are not trained on and not reported; `steps` how many steps
    the run takes. `criterion` is needed for the gamma of a focal loss, `batch` spaces the looks
    (see `Radius`), `predict` replaces the model in evaluation mode as what gives the logits of
    inputs, and `extra` says how many examples a look passes forward beside the control split. An
    `actuator`, a name or an object of your own, replaces that of the settings. Where FSDP2 shards
    the model, every process calls `step` with the same control examples, and all move alike.

    >>> import torch
    >>> model, data = torch.nn.Linear(3, 2), (torch.randn(50, 3), torch.arange(50) % 2)
    >>> optimizer = SAM(model.parameters(), rho=0.05, lr=0.1)
    >>> control = RadiusControl(model, optimizer, data, steps=100)
    >>> control.step(), control.report()["control/rho"]
    (False, 0.05)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        control: Iterable[Tensor],
        steps: int,
        settings: Radius | None = None,
        *,
        criterion: nn.Module | None = None,
        batch: int | None = None,
        predict: Callable[[Tensor], Tensor] | None = None,
        actuator: Actuator | ActuatorName | None = None,
        extra: int = 0,
    ) -> None:
        if steps < 1:
            raise ValueError(f"steps is how many steps the run takes, at least 1; got {steps}")
        self.settings = settings or Radius()
        self.x, self.y = pair_of(control)
        check_finite_inputs("control", self.x)
        self.steps = steps
        if predict is None:
            predict = partial(logits_of, as_logits_model(model, self.x)[0])
        self.predict = predict
        # Processes that shard the weights look at the same examples, and must decide alike.
        groups = ranks_of(model.parameters())
        self.share: Callable[[Reading], Reading] = partial(
            mean_reading, groups=groups, device=self.x.device
        )

        if actuator is None or isinstance(actuator, str):
            actuator = make_actuator(actuator or self.settings.actuator, optimizer, criterion)
        self.actuator = actuator
        self.integrator = self.settings.integrator(self.actuator)
        passes = 2 if isinstance(optimizer, SAM) else 1
        self.every = self.settings.interval(len(self.y) + extra, batch, passes)

        self.return_step = self.settings.return_step(steps)
        self.steps_taken = 0
        self.reading: Reading | None = None  # of the last look
        self.look_seconds: list[float] = []  # of each look since the start, or the resumption

    @property
    def held(self) -> bool:
        """Whether the control split is trained on from the next step, and nothing moves any more.

        It is so after the share `return_from` of the run. A loop of your own then adds the split
        to its training data.
        """
        return self.return_step is not None and self.steps_taken >= self.return_step

    def step(self) -> bool:
        """Count a step of the optimizer, look where a look is due, and return whether it was."""
        if self.held:  # the step was trained on the split: what a look would see is too good
            self.integrator.acted = 0

        self.steps_taken += 1
        due = self.steps_taken % self.every == 0
        if not due or not self.settings.looks_after(self.steps_taken, self.steps):
            return False
        self.look(self.steps_taken / self.steps)
        return True

    def look(self, progress: float) -> Reading:
        """Read the sensor and move the actuator."""
        began = time_on(self.x.device)
        logits = self.predict(self.x)
        if self.reading is None and logits.ndim == 2 and logits.shape[1] > 1:
            check_no_softmax(logits, "the control split")
        reading = self.share(read(self.settings.sensor, logits, self.y))
        self.reading = reading
        self.actuator.set_factor(math.exp(self.integrator.update(reading, progress)))
        self.look_seconds.append(time_on(self.x.device) - began)
        return reading

    def report(self) -> dict[str, float]:
        """Return the numbers of a row: the actuator, and what the last look found and did."""
        numbers = {f"control/{name}": value for name, value in self.actuator.values().items()}
        if self.reading is not None:
            if math.isfinite(self.reading.standard_error):  # else the error is not known
                numbers[f"control/{self.settings.sensor}"] = self.reading.error
                numbers["control/standard_error"] = self.reading.standard_error
            numbers["control/acted"] = self.integrator.acted
        if self.look_seconds:
            numbers["control/look_seconds"] = statistics.fmean(self.look_seconds)
        if self.return_step is not None:
            numbers["control/held"] = int(self.held)
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes, as plain values."""
        return {
            "steps": self.steps_taken,
            "starts": self.actuator.state_dict(),
            "integrator": self.integrator.state_dict(),
            "reading": None if self.reading is None else list(self.reading),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, and set the actuator; load the optimizer before."""
        self.steps_taken = state["steps"]
        self.reading = None if state["reading"] is None else Reading(*state["reading"])
        self.actuator.load_state_dict(state["starts"])
        self.integrator.load_state_dict(state["integrator"])
        self.actuator.set_factor(math.exp(self.integrator.position))


def time_on(device: torch.device) -> float:
    """Return the time once the device has done what it was given before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def mean_reading(
    reading: Reading, groups: "Sequence[dist.ProcessGroup]", device: torch.device
) -> Reading:
    """Return the mean of what the processes of these groups have read; without any, the reading."""
    if not groups:
        return reading
    total = reduced(torch.tensor(reading, dtype=torch.float64, device=device), groups)
    return Reading(*(total / processes_in(groups)).tolist())


def pair_of(control: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return inputs and labels; raise where they are not two tensors of the same length."""
    parts = list(control) if isinstance(control, tuple | list) or hasattr(control, "y") else []
    if len(parts) == 2 and all(isinstance(part, Tensor) for part in parts):
        x, y = parts
        if len(x) == len(y) >= 2:
            return x, y
        raise ValueError(
            "control needs as many labels as inputs, and two examples at least; got "
            f"{len(x)} inputs and {len(y)} labels"
        )
    raise ValueError(
        "control takes two tensors, inputs and labels, cut from the training "
        f"data; got {type(control).__name__}"
    )
