"""Each process has a share of a batch: what a method computes of the whole batch is gathered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from toosure.processes.collectives import Context
from toosure.processes.group import ALONE, Processes

_sharing: ContextVar[Processes] = ContextVar("processes that share a batch", default=ALONE)


@contextmanager
def sharing_batches(processes: Processes) -> Iterator[None]:
    """Inside, every process has an equal share of each batch, in the order of the ranks."""
    token = _sharing.set(processes)
    try:
        yield
    finally:
        _sharing.reset(token)


def rows_of_all(share: Tensor) -> Tensor:
    """Return the rows of all processes, where each has a share of the batch; else the tensor.

    Gradients pass, on the understanding that every process computes the same number of all rows:
    then the average of their gradients, as DistributedDataParallel takes it, is the gradient of
    that number.

    >>> rows_of_all(torch.arange(3))
    tensor([0, 1, 2])
    """
    processes = _sharing.get()
    if processes.count == 1:
        return share

    whole: Tensor = GatherShares.apply(share, processes)
    return whole


def sharing_processes() -> int:
    """Return how many processes share a batch here: one, unless inside `sharing_batches`."""
    return _sharing.get().count


class GatherShares(torch.autograd.Function):
    """Join the shares of all processes, each of the same shape.

    The others have the same gradient of our rows, so that their sum needs no exchange.
    (`torch.distributed.nn.functional.all_gather` adds them up; torch 2.13 deprecates it.)
    """

    @staticmethod
    def forward(ctx: Context, share: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        ctx.n = len(share) * processes.count
        parts = [torch.empty_like(share) for _ in range(processes.count)]
        dist.all_gather(parts, share.contiguous(), group=processes.group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.processes.count * gradient[ctx.processes.rows(ctx.n)], None


class LossOfShare(nn.Module):
    """The loss of this process's share of a batch, as what DistributedDataParallel wraps.

    It wraps the loss and not the network, so that an objective may call the network as often and
    in whatever way it likes, and so that its own parameters `own` learn with the network's.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Callable[[nn.Module, object], Tensor],
        own: list[nn.Parameter],
        factor: float,
    ) -> None:
        super().__init__()
        self.network = network
        self.own = nn.ParameterList(own)
        self.objective = (objective,)  # in a tuple: its buffers are not those of the network
        self.factor = factor

    def forward(self, prepared: object) -> Tensor:
        (objective,) = self.objective
        loss = objective(self.network, prepared)
        return loss if self.factor == 1 else self.factor * loss
