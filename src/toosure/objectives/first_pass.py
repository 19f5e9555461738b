"""The logits of a pass that was made before the loss is asked for, so that it is not made twice."""

from torch import Tensor, nn


class FirstPass:
    """Hold the logits of a batch, with their graph, for the first loss that asks.

    They are given once, and only while the weights are unchanged: an optimizer that moves the
    weights before its first closure, or asks again, gets None. Weights that are moved through
    `p.data` are not noticed.

    >>> import torch
    >>> model, x = nn.Linear(2, 3), torch.zeros(4, 2)
    >>> first = FirstPass(model, model(x))
    >>> first.take(model).shape, first.take(model)
    (torch.Size([4, 3]), None)
    """

    def __init__(self, model: nn.Module, logits: Tensor) -> None:
        self.logits: Tensor | None = logits
        self.versions = versions(model)

    def take(self, model: nn.Module) -> Tensor | None:
        logits = self.logits
        self.logits = None
        return logits if self.versions == versions(model) else None


def versions(model: nn.Module) -> list[int]:
    """Return how often each parameter was changed in place."""
    return [p._version for p in model.parameters()]
