"""Evaluation mode for a while: each module comes back in the mode that it had."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Hold the model in eval mode, then restore the mode of every module.

    The mode is restored per module: a frozen BatchNorm must not come back in training mode.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
