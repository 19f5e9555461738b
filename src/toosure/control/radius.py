"""Radius control: steer SAM's radius (or a gamma) by how over-confident the network is."""

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.control import messages
from toosure.control.actuators import Actuator, ActuatorName, make_actuator, overwritten_values
from toosure.control.checks import check_classes, check_split, pair_of, whole_count
from toosure.control.sensor import Reading, read
from toosure.control.settings import Radius, checked_settings
from toosure.optim import SAM
from toosure.optim.wrapper import innermost
from toosure.processes.dtensor import processes_in, ranks_of, reduced
from toosure.sentences import every_steps
from toosure.watch.logits_model import as_logits_model, check_finite_inputs
from toosure.watch.probability_outputs import check_no_softmax
from toosure.watch.split import logits_of


class RadiusControl:
    """Control a training loop: call `step()` after every step of the optimizer.

    `control` holds inputs and labels that are neither trained on nor reported; `steps` is the
    number of steps of the run. `criterion` is needed for the gamma of a focal loss, and `batch`,
    the batch size, spaces the looks (see `Radius`). `predict(inputs)` replaces the model in
    evaluation mode; `extra` is the number of examples that a look passes forward besides the
    control split. An `actuator`, a name or an object of your own, replaces the one of the settings.
    If FSDP2 shards the model, all processes call `step` with the same control examples, and move
    alike.

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
        steps = whole_count("steps", steps, "how many steps of the optimizer the run takes")
        if batch is not None:
            batch = whole_count("batch", batch, "how many examples a step takes")
        self.settings = checked_settings(settings, own_loop=predict is None)
        self.x, self.y = pair_of(control)
        check_finite_inputs("control", self.x)
        self.steps = steps
        if predict is None:
            predict = partial(logits_of, as_logits_model(model, self.x)[0])
            check_split(predict, self.x, self.y, next(model.parameters()).dtype)
        check_classes(self.y)
        self.predict = predict
        # Processes that shard the weights must take the same decision.
        groups = ranks_of(model.parameters())
        self.share: Callable[[Reading], Reading] = partial(
            mean_reading, groups=groups, device=self.x.device
        )

        if isinstance(innermost(optimizer), SAM):  # a framework may have wrapped it
            optimizer = innermost(optimizer)
        if actuator is None or isinstance(actuator, str):
            actuator = make_actuator(actuator or self.settings.actuator, optimizer, criterion)
        self.actuator = actuator
        self.integrator = self.settings.integrator(self.actuator)
        passes = 2 if isinstance(optimizer, SAM) else 1
        self.every = self.settings.interval(len(self.y) + extra, batch, passes, steps)

        if not self.settings.ever_looks(self.every, steps):
            warnings.warn(
                f"control never looks: a look {every_steps(self.every)}, in a run of {steps}; give "
                "a smaller `every`",
                stacklevel=2,
            )

        self.return_step = self.settings.return_step(steps)
        self.steps_taken = 0
        self.reading: Reading | None = None  # of the last look
        self.warned_of_infinite_logits = False  # a warning was given
        self.warned_of_other_changes = False
        self.look_seconds: list[float] = []  # of each look since the start, or the resumption
        self.looks: list[dict[str, float]] = []  # what `report` says after each look, but seconds

    @property
    def held(self) -> bool:
        """Whether the control split is trained on from the next step, and the actuator is held.

        That begins at the share `return_from` of the run. A loop of your own must then add the
        split to its training data.
        """
        return self.return_step is not None and self.steps_taken >= self.return_step

    def step(self) -> bool:
        """Count a step of the optimizer; look if a look is due, and return whether it was."""
        if self.held:  # the split is trained on now, so a look would be too optimistic
            self.integrator.acted = 0

        self.steps_taken += 1
        if self.steps_taken == self.steps + 1:
            warnings.warn(messages.extra_steps(self.steps), stacklevel=2)
        due = self.steps_taken % self.every == 0
        looks = due and self.settings.looks_after(self.steps_taken, self.steps)
        if looks:
            self.look(self.steps_taken / self.steps)
        if self.steps_taken == self.steps and (left := messages.error_at_end(self)):
            warnings.warn(left, stacklevel=2)
        return looks

    def look(self, progress: float) -> Reading:
        """Read the sensor and move the actuator."""
        began = time_on(self.x.device)
        with torch.no_grad():
            logits = self.predict(self.x)
        if not self.warned_of_infinite_logits and not bool(torch.isfinite(logits).all()):
            self.warned_of_infinite_logits = True
            warnings.warn(messages.INFINITE_LOGITS, stacklevel=3)
        if self.reading is None and logits.ndim == 2 and logits.shape[1] > 1:
            check_no_softmax(logits, "the control split")

        reading = self.share(read(self.settings.sensor, logits, self.y))
        self.reading = reading
        before, had_given_up = self.actuator.values(), self.integrator.gave_up
        if not self.warned_of_other_changes and (changed := overwritten_values(self.actuator)):
            self.warned_of_other_changes = True
            warnings.warn(messages.other_changes(changed), stacklevel=3)
        self.actuator.set_factor(math.exp(self.integrator.update(reading, progress)))

        self.look_seconds.append(time_on(self.x.device) - began)
        numbers = self.report()
        numbers.pop("control/look_seconds")
        self.looks.append({"step": self.steps_taken} | numbers)

        if self.integrator.gave_up and not had_given_up:
            sensor, guard = self.settings.sensor, self.integrator.direction
            text = messages.gave_up(before, self.actuator.values(), sensor, guard)
            warnings.warn(text, stacklevel=3)
        return reading

    def report(self) -> dict[str, float]:
        """Return the numbers of a row: the actuator, and what the last look found and did."""
        numbers = {f"control/{name}": value for name, value in self.actuator.values().items()}
        numbers["control/examples"] = len(self.y)
        if self.reading is not None:
            if math.isfinite(self.reading.standard_error):  # else the error is unknown
                numbers[f"control/{self.settings.sensor}"] = self.reading.error
                numbers["control/standard_error"] = self.reading.standard_error
            numbers["control/acted"] = self.integrator.acted
            numbers["control/at_bound"] = int(self.integrator.at_bound)
            if self.integrator.gave_up:
                numbers["control/gave_up"] = 1
            if math.isfinite(self.integrator.band):
                numbers["control/band"] = self.integrator.band
        if self.look_seconds:
            numbers["control/look_seconds"] = statistics.fmean(self.look_seconds)
        if self.return_step is not None:
            numbers["control/held"] = int(self.held)
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values, with the kind of sensor and actuator."""
        return self.kind | {
            "steps": self.steps_taken,
            "starts": self.actuator.state_dict(),
            "integrator": self.integrator.state_dict(),
            "reading": None if self.reading is None else list(self.reading),
            "looks": [dict(look) for look in self.looks],
        }

    @property
    def kind(self) -> dict[str, str]:
        """The sensor and the actuator, which a state must match."""
        return {"sensor": self.settings.sensor, "actuator": type(self.actuator).__name__}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if a state is not of a controller like this one."""
        needed = (*self.kind, "steps", "starts", "integrator", "reading")
        lacking = [name for name in needed if name not in (state or {})]
        if not lacking:  # an earlier version kept less
            kept = state["integrator"]
            lacking = [name for name in self.integrator.state_dict() if name not in kept]
        if lacking:
            raise ValueError(f"not the state of a RadiusControl: it lacks {', '.join(lacking)}")

        own, other = list(self.actuator.state_dict()), list(state["starts"])
        if own != other:
            raise ValueError(
                f"the state is of a controller of {', '.join(other)}, but this one moves "
                f"{', '.join(own)}: make it with the same actuator"
            )
        for name, mine in self.kind.items():
            if state[name] != mine:
                raise ValueError(
                    f"the state is of a controller with the {name} {state[name]}, but this one "
                    f"has {mine}: make it with the same {name}"
                )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, and set the actuator; load the optimizer before."""
        self.check_state(state)
        self.actuator.load_state_dict(state["starts"])
        self.steps_taken = state["steps"]
        self.reading = None if state["reading"] is None else Reading(*state["reading"])
        self.looks = [dict(look) for look in state.get("looks", ())]
        # Bounds are relative to the start, which may differ from this controller's.
        self.integrator = self.settings.integrator(self.actuator)
        self.integrator.load_state_dict(state["integrator"])
        self.actuator.set_factor(math.exp(self.integrator.position))
        if self.steps_taken > self.steps:
            warnings.warn(messages.extra_steps(self.steps), stacklevel=2)


def time_on(device: torch.device) -> float:
    """Return the time after the device has finished its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def mean_reading(
    reading: Reading, groups: "Sequence[dist.ProcessGroup]", device: torch.device
) -> Reading:
    """Return the mean reading of the processes of these groups; without groups, the reading."""
    if not groups:
        return reading
    total = reduced(torch.tensor(reading, dtype=torch.float64, device=device), groups)
    return Reading(*(total / processes_in(groups)).tolist())
