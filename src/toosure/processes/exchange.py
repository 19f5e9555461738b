"""Exchanges that gradients pass through, twice where asked, and dual numbers by their parts.

A tensor is either whole, the same in all processes, and its gradient is whole too; or it is a part,
this process's rows, with a gradient of those rows. `Rows` and `Gathered` lead from one to the other
and are each other's gradient. `Total` adds up what all processes hold for use on parts, so that its
gradient has to be added up again; `Summed` adds up for use on what is whole, where it has not.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from toosure.processes.group import Processes


class Rows(torch.autograd.Function):
    """Take this process's rows of a whole tensor."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, processes: Processes) -> Tensor:
        ctx.processes, ctx.n = processes, len(whole)
        return whole[processes.rows(len(whole))].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return Gathered.apply(gradient, ctx.n, ctx.processes), None


class Gathered(torch.autograd.Function):
    """Join the rows of all processes."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, n: int, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.gathered(part, n)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return Rows.apply(gradient, ctx.processes), None, None


class Total(torch.autograd.Function):
    """Add up over all processes, for use on parts."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.total(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return Total.apply(gradient, ctx.processes), None


class Summed(torch.autograd.Function):
    """Add up over all processes, for use on what is whole."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, processes: Processes) -> Tensor:
        return processes.total(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return gradient, None


def dual(exchange: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """Exchange a tensor, and its tangent where it is a dual number."""
    primal, tangent = forward_ad.unpack_dual(tensor)
    if tangent is None:
        return exchange(tensor)
    return forward_ad.make_dual(exchange(primal), exchange(tangent))


def gathered(part: Tensor, n: int, processes: Processes) -> Tensor:
    """Join the rows of all processes."""
    return dual(lambda t: Gathered.apply(t, n, processes), part)


def total(tensor: Tensor, processes: Processes) -> Tensor:
    """Add up over all processes, for use on parts."""
    return dual(lambda t: Total.apply(t, processes), tensor)


@torch.no_grad()
def share_gradients(
    parts: Iterable[Tensor], wholes: Iterable[Tensor], processes: Processes
) -> None:
    """Add up the gradients of parameters that saw parts of a batch; average those that saw all.

    The second are equal already, up to the order in which a GPU adds: averaging keeps them equal.
    """
    scaled = [(p, 1.0) for p in parts] + [(p, 1 / processes.count) for p in wholes]
    alike: dict[torch.dtype, list[tuple[Tensor, float]]] = {}
    for p, share in scaled:
        if p.grad is not None:
            alike.setdefault(p.grad.dtype, []).append((p.grad, share))
    for gradients in alike.values():
        flat = torch.cat([g.flatten() if s == 1 else g.flatten() * s for g, s in gradients])
        found = processes.total(flat).split([g.numel() for g, _ in gradients])
        for (gradient, _), new in zip(gradients, found, strict=True):
            gradient.copy_(new.view(gradient.shape))
