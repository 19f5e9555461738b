"""What is watched: the network as it predicts, and the examples it is watched on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toosure.watch.best import Best
from toosure.watch.mirror import looking, mirror_of
from toosure.watch.split import Look, WatchedSplit

Data = Iterable[Tensor]  # (inputs, labels)


class Subject:
    """A network on its splits, looked at as it is, or if it `waits` as it was when `taken`."""

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        objective: Any,
        splits: Mapping[str, Data | None],
        test: Data | None,
        measure: Sequence[str],
        waits: bool,
        **settings: Any,
    ) -> None:
        self.device = device_of(model)
        self.mirror = mirror_of(model, loss, objective, self.device) if waits else None
        seen = watched(model if self.mirror is None else self.mirror.model, objective)
        self.splits = {
            name: WatchedSplit(
                name, seen, loss, as_data(name, data, self.device), measure, **settings
            )
            for name, data in splits.items()
            if data is not None
        }
        self.best = Best(seen, splits["val"], test) if "best" in measure else None

    def take(self) -> bool:
        """Take the weights of this moment, to be looked at later; False where that cannot wait."""
        if self.mirror is not None:
            self.mirror.take()
        return self.mirror is not None

    def wait(self) -> None:
        """Wait for what training queued before what is to be looked at."""
        if self.mirror is not None:
            self.mirror.wait()
        elif self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def look(self, step: int) -> dict[str, Look]:
        """Look at every split; may say `Diverged`."""
        with looking(self.mirror):
            looks = {name: split.look() for name, split in self.splits.items()}
            if self.best is not None:
                self.best.look(step, looks["val"])
        return looks

    def snapshot(self, looks: Mapping[str, Look]) -> dict[str, np.ndarray]:
        """What the report moves through, of all splits."""
        parts = [self.splits[name].snapshot(look) for name, look in looks.items()]
        return {name: array for part in parts for name, array in part.items()}

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


class Predicting(nn.Module):
    """A model as its objective predicts with it: two heads become one set of logits."""

    def __init__(self, model: nn.Module, objective: Any) -> None:
        super().__init__()
        self.model = model
        self.predict = objective.predict  # not registered: its state is not the model's

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.model, x)


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


def watched(model: nn.Module, objective: Any = None) -> nn.Module:
    """Return what gives the logits to measure: the model, or the objective's prediction."""
    return Predicting(model, objective) if hasattr(objective, "predict") else model


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
            f"{name} must have one label an example; got {len(x)} examples and {len(y)} labels"
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
