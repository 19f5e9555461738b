"""What is measured: the network as it predicts, on the examples of each split."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from toosure.watch.best import Best
from toosure.watch.criterion import Criterion
from toosure.watch.split import Observation, WatchedSplit

Data = Iterable[Tensor]  # (inputs, labels)
Observations = Mapping[str, Observation]  # by the name of the split


@runtime_checkable
class Predicts(Protocol):
    """An objective that has its own way to predict: several heads become one set of logits."""

    def predict(self, model: nn.Module, x: Tensor) -> Tensor: ...


class Measurer:
    """Observe a network on its splits, and keep what the next observation needs."""

    def __init__(
        self,
        model: nn.Module,
        loss: Criterion,
        objective: object,
        splits: Mapping[str, Data | None],
        test: Data | None,
        measure: Sequence[str],
        **settings: Any,
    ) -> None:
        self.device = device_of(model)
        predictor = predictor_of(model, objective)
        self.splits = {
            name: WatchedSplit(
                name, predictor, loss, as_data(name, data, self.device), measure, **settings
            )
            for name, data in splits.items()
            if data is not None
        }
        self.best = Best(predictor, splits["val"], test) if "best" in measure else None

    def observe(self, step: int) -> dict[str, Observation]:
        """Observe every split; raise `Diverged` where outputs or loss are not finite."""
        observations = {name: split.observe() for name, split in self.splits.items()}
        if self.best is not None:
            self.best.compare(step, observations["val"])
        return observations

    def snapshot(self, observations: Observations) -> dict[str, np.ndarray]:
        """Return what the report's slider moves through, of all splits."""
        arrays: dict[str, np.ndarray] = {}
        for name, observation in observations.items():
            arrays |= self.splits[name].snapshot(observation)
        return arrays

    def state_dict(self) -> dict[str, Any]:
        trackers = {name: split.tracker for name, split in self.splits.items()}
        return {
            "trackers": {name: t.state_dict() for name, t in trackers.items() if t is not None},
            "best": {} if self.best is None else self.best.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, tracker_state in state["trackers"].items():
            tracker = self.splits[name].tracker
            assert tracker is not None  # since the measures are the same
            tracker.load_state_dict(tracker_state)
        if self.best is not None and state.get("best"):
            self.best.load_state_dict(state["best"])


class Predictor(nn.Module):
    """A model as its objective predicts with it."""

    def __init__(self, model: nn.Module, objective: Predicts) -> None:
        super().__init__()
        self.model = model
        self.predict = objective.predict  # not registered: its state is not the model's

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.model, x)


def predictor_of(model: nn.Module, objective: object = None) -> nn.Module:
    """Return what gives the logits to measure: the model, or the objective's prediction."""
    return Predictor(model, objective) if isinstance(objective, Predicts) else model


def device_of(model: nn.Module) -> torch.device:
    """Return where a network's parameters are; raise on what is no network."""
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model must be a torch.nn.Module; got {type(model).__name__}: put a function of one "
            "into the forward of a Module that holds it"
        )
    first = next(model.parameters(), None)
    if first is None:
        raise ValueError(f"{type(model).__name__} has no parameters: there is nothing to watch")
    return first.device


def as_data(name: str, data: Data, device: torch.device) -> tuple[Tensor, Tensor]:
    """Check a split and bring it to the device."""
    parts = tuple(data) if isinstance(data, Iterable) and not isinstance(data, Tensor) else ()
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        raise ValueError(
            f"{name} must be (inputs, labels), two tensors; got {type(data).__name__}: gather a "
            "fixed set of examples from a loader with torch.cat"
        )

    x, y = parts
    if len(x) != len(y):
        raise ValueError(
            f"{name} must have one label per example; got {len(x)} examples and {len(y)} labels"
        )
    if len(x) == 0:
        raise ValueError(f"{name} is empty: give it examples, or leave it out")

    if x.is_floating_point():
        bad = (~torch.isfinite(x.flatten(1).sum(1))).nonzero()
        if len(bad):
            raise ValueError(
                f"{name} inputs must be finite; example {int(bad[0])} holds NaN or infinity"
            )
    return x.to(device), y.to(device)
