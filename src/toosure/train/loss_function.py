"""Wrap a loss that is a plain function of logits and labels as a module."""

import inspect
from collections.abc import Callable, Mapping

from torch import Tensor, nn


class LossFunction(nn.Module):
    """Call a function with (logits, labels): one of the user's own, or of torch.nn.functional.

    >>> import torch
    >>> LossFunction(nn.functional.cross_entropy)(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]))
    tensor(0.6931)
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.function(logits, labels)

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def takes_logits(target: Callable[..., object], settings: Mapping[str, object]) -> bool:
    """Whether a function is a loss, not a factory of one: two of its arguments are still open.

    >>> takes_logits(nn.functional.cross_entropy, {}), takes_logits(nn.CrossEntropyLoss, {})
    (True, False)
    """
    if inspect.isclass(target):
        return False
    needed = [
        name
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and name not in settings
    ]
    return len(needed) == 2
