"""What an optimizer declares about itself, and who can be recorded as a CUDA graph."""

import inspect
from collections.abc import Iterator
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer


class Traits:
    """What a training loop and the command line need to know about an optimizer.

    An optimizer inherits this class and overrides what differs. Read a trait with a default, as
    `getattr(optimizer, "needs_tracker", False)`: torch's own optimizers declare nothing. Losses
    and objectives may declare `cuda_graph` in the same way.
    """

    cuda_graph: ClassVar[bool | str] = True
    """Whether a CUDA graph can record it; a string is the reason why not, "draws on the host"."""

    cuda_graph_varying_lr: ClassVar[bool | str | None] = None
    """Whether a recorded step follows a learning rate that changes; a string says why not.

    None asks torch's rule: an optimizer with the setting `fused` reads its rate from a tensor.
    """

    passes_arguments_to: ClassVar[str] = ""
    """Where unknown keyword arguments go: "base", the word of an optimizer ("sgd"), or nowhere."""

    needs_tracker: ClassVar[bool] = False
    """Whether it is built with `tracker=`, which finds top eigenvectors of the curvature."""

    wraps_criterion: ClassVar[bool] = False
    """Whether the closure must use `optimizer.criterion(loss)` in the place of the loss."""

    splits_matrices: ClassVar[bool] = False
    """Whether it takes the parameters in two groups, as `optim.muon.hidden_and_rest` sorts them."""


def why_not_recorded(
    *methods: object, lr_varies: bool = False, loss_scaling: bool = False
) -> str | None:
    """Return why a step with these methods cannot be a CUDA graph, or None if it can.

    `methods` are the optimizer, the loss and the objective, as objects or as classes. An object is
    asked together with what it contains (the base of an optimizer, the terms of a loss, the loss
    of an objective). A class cannot be: name the base's class beside it. `lr_varies` says that the
    learning rate follows a schedule that is not constant, `loss_scaling` that a loss scaler is
    used, as with fp16.

    >>> from toosure.optim import BulkSGD, Muon
    >>> why_not_recorded(BulkSGD)
    'BulkSGD solves for new directions on the host: leave graph out'
    >>> why_not_recorded(Muon, lr_varies=True)
    'Muon reads its learning rate on the host: with graph use a constant schedule'
    >>> why_not_recorded(Muon) is None
    True
    """
    if loss_scaling:
        return "fp16 decides on the host which steps to skip: use bf16 with graph"

    for part in (part for method in methods for part in _parts(method)):
        answer = getattr(part, "cuda_graph", True)
        if answer is not True:
            reason = answer or "cannot be recorded as a CUDA graph"
            return f"{_name(part)} {reason}: leave graph out"

        answer = _follows_lr(part) if lr_varies else True
        if answer is not True:
            reason = answer or "reads its learning rate on the host"
            return f"{_name(part)} {reason}: with graph use a constant schedule"
    return None


def _parts(method: object) -> Iterator[object]:
    """Yield a method and the methods inside it, each of which may have a reason."""
    if isinstance(method, nn.Module):
        yield from method.modules()
        return

    yield method
    if isinstance(method, type):
        return
    for name in ("base", "loss"):  # of an optimizer, and of an objective that is no module
        inner = getattr(method, name, None)
        if isinstance(inner, nn.Module | Optimizer):
            yield from _parts(inner)


def _follows_lr(part: object) -> bool | str:
    """Whether a recorded step reads its learning rate from a tensor; a loss has none to read."""
    declared: bool | str | None = getattr(part, "cuda_graph_varying_lr", None)
    if declared is not None:
        return declared
    if isinstance(part, Optimizer):
        return all("fused" in group for group in part.param_groups)
    if isinstance(part, type) and issubclass(part, Optimizer):
        return "fused" in inspect.signature(part).parameters
    return True


def _name(part: object) -> str:
    return part.__name__ if isinstance(part, type) else type(part).__name__
