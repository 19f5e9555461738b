"""What is watched: the network as it predicts, and the examples it is watched on."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

Data = Iterable[Tensor]  # (inputs, labels)


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
