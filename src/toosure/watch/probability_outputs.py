"""Refuse models that give probabilities where logits are needed."""

from contextlib import suppress

import torch
from torch import Tensor, nn

from toosure.batches.inputs import as_type
from toosure.eval_mode import evaluating
from toosure.metrics.distributions import are_probabilities
from toosure.processes.dtensor import any_sharded

# Names in autograd of steps that only move or convert values.
RESHAPING = ("Squeeze", "Unsqueeze", "View", "Reshape", "Select", "Slice", "ToCopy", "Clone")


def check_no_softmax(logits: Tensor, name: str) -> None:
    """Raise if outputs (N, C) are probabilities: a softmax of probabilities would be judged.

    Sums are compared at the precision of bfloat16, in which a model may compute them.
    """
    if are_probabilities(logits.bfloat16()):
        raise ValueError(
            f"the model's outputs are probabilities (on {name} every row lies in [0, 1] and sums "
            "to 1), but logits are needed: remove the model's last Softmax, or replace it by "
            "LogSoftmax (log-probabilities are logits)"
        )


def check_no_sigmoid(model: nn.Module, x: Tensor) -> None:
    """Raise if a model with one output per example ends in a sigmoid, layer or function."""
    if ends_in_sigmoid(model, x):
        raise ValueError(
            "the model's outputs are probabilities, but logits are needed: remove the model's "
            "last Sigmoid, and train with BCEWithLogitsLoss"
        )


def ends_in_sigmoid(model: nn.Module, x: Tensor) -> bool:
    """Whether the last step of a model, reshaping aside, is a sigmoid.

    If autograd does not show it (compiled or sharded models), the last layer decides.

    >>> model = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid(), nn.Flatten(0))
    >>> ends_in_sigmoid(model, torch.ones(2, 3))
    True
    """
    step = last_step(model, x)
    if step is None or "Function" in step:
        *_, last = model.modules()
        return isinstance(last, nn.Sigmoid)
    return step.startswith("Sigmoid")


def last_step(model: nn.Module, x: Tensor) -> str | None:
    """Return autograd's name of the last step that changes values; None if it is not known."""
    if any_sharded(model.parameters()):
        return None
    outputs = None
    for inputs in (x[:2], as_type(x[:2], next(model.parameters()).dtype)):
        inputs = inputs.detach()
        if inputs.is_floating_point():
            inputs.requires_grad_()  # a frozen model shows its steps then, too
        with evaluating(model), torch.enable_grad(), suppress(RuntimeError):
            outputs = model(inputs)
            break

    step = getattr(outputs, "grad_fn", None)
    while step is not None and step.name().removeprefix("Unsafe").startswith(RESHAPING):
        step = step.next_functions[0][0]
    return None if step is None else str(step.name())
