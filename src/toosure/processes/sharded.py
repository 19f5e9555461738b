"""A network spread over processes: each runs its rows of a batch, and all see all outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from toosure.processes.exchange import Rows, Summed, gathered
from toosure.processes.group import Processes
from toosure.processes.layers import seeing_all, together


class Sharded(nn.Module):
    """Run a network's rows of a batch here and the others elsewhere, and return all of them.

    Every process gives the same whole batch and computes the same loss of all outputs, so that
    whatever a loss does with a batch (pairs, means, ranks, mixtures) it does as in one process.
    Gradients of the inputs come out whole; those of the parameters are of this process's rows and
    must be added up: `share_gradients`. Layers keep their types, and a state dict its names.

    >>> from toosure.processes import ALONE
    >>> Sharded(nn.Linear(2, 3), ALONE)(torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module: nn.Module, processes: Processes) -> None:
        super().__init__()
        self.module, self.processes = module, processes
        self.layers = together(module)
        self.training = module.training

    def forward(self, x: Tensor) -> Tensor:
        return self.spread(self.module, x)

    def spread(self, function: Callable[[Tensor], Any], x: Tensor) -> Any:
        """Call a function of the network on our rows, and join what all of them return."""
        n = len(x)
        whole = x.requires_grad and torch.is_grad_enabled()
        mine = Rows.apply(x, self.processes) if whole else x[self.processes.rows(n)]
        with seeing_all(self.layers, n, self.processes):
            found = function(mine)
        if isinstance(found, Tensor):
            return gathered(found, n, self.processes)
        return tuple(gathered(part, n, self.processes) for part in found)

    def summed(self, gradient: Tensor) -> Tensor:
        """Add up a gradient of parameters over all processes, with its own gradient."""
        return Summed.apply(gradient, self.processes)
