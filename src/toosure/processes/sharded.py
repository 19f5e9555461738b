"""A network spread over processes: each runs its rows of a batch, and all get all outputs."""

from collections.abc import Callable
from typing import overload

import torch
from torch import Tensor, nn

from toosure.processes.collectives import SumForWhole, TakeRows, gather_rows
from toosure.processes.group import Processes
from toosure.processes.whole_batch import as_whole_batch, whole_batch_layers


class Sharded(nn.Module):
    """Run this process's rows of a batch through a network, and return the outputs of all rows.

    Every process passes the same whole batch and computes the same loss of all outputs, so that
    whatever a loss does with a batch (pairs, means, ranks, mixtures) it does as in one process.
    Gradients of the inputs are whole; those of the parameters belong to this process's rows and
    must be added up: `share_gradients`. Layers keep their types, and a state dict its names.

    >>> from toosure.processes import ALONE
    >>> Sharded(nn.Linear(2, 3), ALONE)(torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module: nn.Module, processes: Processes) -> None:
        super().__init__()
        self.module = module
        self.processes = processes
        self.layers = whole_batch_layers(module)
        self.training = module.training

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.spread(self.module, x)
        return outputs

    @overload
    def spread(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor: ...
    @overload
    def spread(
        self, function: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor
    ) -> tuple[Tensor, Tensor]: ...
    def spread(
        self, function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], x: Tensor
    ) -> Tensor | tuple[Tensor, ...]:
        """Call a function of the network on our rows, and join what it returns in all processes."""
        n = len(x)
        if x.requires_grad and torch.is_grad_enabled():
            own_rows = TakeRows.apply(x, self.processes)
        else:
            own_rows = x[self.processes.rows(n)]

        with as_whole_batch(self.layers, n, self.processes):
            outputs = function(own_rows)

        if isinstance(outputs, Tensor):
            return gather_rows(outputs, n, self.processes)
        return tuple(gather_rows(part, n, self.processes) for part in outputs)

    def summed(self, gradient: Tensor) -> Tensor:
        """Add up a gradient of the parameters over all processes, differentiably."""
        total: Tensor = SumForWhole.apply(gradient, self.processes)
        return total
