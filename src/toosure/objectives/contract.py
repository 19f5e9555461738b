"""The contract that joins optimizers and objectives, and its simplest case."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

Batch = tuple[Tensor, Tensor, Tensor]  # inputs, labels, indices into the training split


class Objective(Protocol):
    """See the model and the batch; the closure may be called twice a step, by SAM and its kin.

    `prepare` is called once a step and does what must not be repeated: it draws the mixup, crafts
    the attack, takes the meta-step (an argument called `lr` receives the learning rate). Then
    `objective(model, prepared)` gives the loss, as often as the optimizer asks, on the same
    problem. `loss` is its criterion of (logits, labels), which CSAM replaces.

    BSAM cuts a batch into parts, and `prepare` is called for each: what happens once a step (to
    count it, to take a meta-step) happens where an argument called `part` receives 0.

    Optional: `setup(model, data)` before the first step, with a `toosure.data.Dataset` or tensors,
    (x, y) or ((x, y), (val_x, val_y)), which may return the data with a split of its own cut off;
    `epoch_end(model)`, `parameters()` that join the optimizer, `predict(model, x)` for the logits
    that the watch evaluates, `report()` for numbers in the row, `state_dict` and `load_state_dict`
    for the checkpoint. `capturable = True` says that `prepare` asks for no rate, draws nothing and
    waits for nothing, so that a CUDA graph records it with the step; one that does comes in two
    halves, `draw(batch, lr)` before the graph and `settle(model, drawn)` in it. `streams = True`
    says that `setup` reads no training examples, which may then stay on disk.
    """

    loss: nn.Module

    def prepare(self, model: nn.Module, batch: Batch) -> Any: ...

    def __call__(self, model: nn.Module, prepared: Any) -> Tensor: ...


class Plain(nn.Module):
    """A loss of (logits, labels) as an objective.

    >>> import torch
    >>> objective, model = Plain(nn.CrossEntropyLoss()), nn.Linear(2, 3)
    >>> batch = (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = criterion_of(loss)

    def prepare(self, model: nn.Module, batch: Batch) -> Batch:
        """Nothing needs to be drawn."""
        return batch

    def forward(self, model: nn.Module, prepared: Batch) -> Tensor:
        inputs, labels, _ = prepared
        return self.loss(model(inputs), labels)


def as_objective(thing: Any) -> Any:
    """Return an objective as it is, and a loss of (logits, labels) as a plain one."""
    return thing if hasattr(thing, "prepare") else Plain(thing)


def criterion_of(loss: nn.Module | None) -> nn.Module:
    """Return the loss, cross-entropy unless told; raise where it gives more than one number."""
    if getattr(loss, "reduction", "mean") == "none":
        raise ValueError(
            "training needs one number a batch: a loss with reduction 'mean' or 'sum'; got 'none'"
        )
    return nn.CrossEntropyLoss() if loss is None else loss


def terms(loss: nn.Module, examples: int) -> int:
    """Return what a mean over examples is multiplied by to join a loss: how many it adds up.

    >>> terms(nn.CrossEntropyLoss(), 32), terms(nn.CrossEntropyLoss(reduction="sum"), 32)
    (1, 32)
    """
    return examples if getattr(loss, "reduction", "mean") == "sum" else 1


def preparing(objective: Any) -> Callable[..., Any]:
    """Return `prepare(model, batch, lr, part=0)`, which tells the objective what it asks for."""
    asked = inspect.signature(objective.prepare).parameters

    def prepare(model: nn.Module, batch: Batch, lr: float, part: int = 0) -> Any:
        known = {"lr": lr, "part": part}
        return objective.prepare(model, batch, **{n: v for n, v in known.items() if n in asked})

    return prepare


def recording(objective: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return `prepare` in two halves, (draw, settle), if a CUDA graph can record the second."""
    if not getattr(objective, "capturable", False):
        return None
    if hasattr(objective, "settle"):
        return objective.draw, objective.settle
    return (lambda batch, lr: batch), objective.prepare
