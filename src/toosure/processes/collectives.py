"""Collectives that gradients pass through, twice if needed, and tangents of forward mode as well.

A tensor is either whole, the same in all processes, and its gradient is whole too; or it is a part,
this process's rows, with a gradient of those rows. `TakeRows` and `GatherRows` lead from one to the
other and are each other's gradient. `SumForParts` adds up what all processes hold for use on parts,
so its gradient has to be added up again; `SumForWhole` adds up for use on what is whole, so its
gradient is whole already.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import FunctionCtx

from toosure.processes.group import Processes


class Context(FunctionCtx):
    """What a forward pass leaves for its backward pass."""

    processes: Processes
    n: int  # rows of the whole tensor


class TakeRows(torch.autograd.Function):
    """Take this process's rows of a whole tensor."""

    @staticmethod
    def forward(ctx: Context, whole: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        ctx.n = len(whole)
        return whole[processes.rows(len(whole))].clone()

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        return GatherRows.apply(gradient, ctx.n, ctx.processes), None


class GatherRows(torch.autograd.Function):
    """Join the rows of all processes."""

    @staticmethod
    def forward(ctx: Context, part: Tensor, n: int, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.gathered(part, n)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:
        return TakeRows.apply(gradient, ctx.processes), None, None


class SumForParts(torch.autograd.Function):
    """Add up over all processes, for use on parts."""

    @staticmethod
    def forward(ctx: Context, tensor: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.total(tensor)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        return SumForParts.apply(gradient, ctx.processes), None


class SumForWhole(torch.autograd.Function):
    """Add up over all processes, for use on what is whole."""

    @staticmethod
    def forward(ctx: Context, tensor: Tensor, processes: Processes) -> Tensor:
        return processes.total(tensor)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def gather_rows(part: Tensor, n: int, processes: Processes) -> Tensor:
    """Join the rows of all processes."""
    return with_tangent(lambda tensor: GatherRows.apply(tensor, n, processes), part)


def sum_for_parts(tensor: Tensor, processes: Processes) -> Tensor:
    """Add up over all processes, for use on parts."""
    return with_tangent(lambda tensor: SumForParts.apply(tensor, processes), tensor)


def with_tangent(collective: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """Apply a linear collective to a tensor, and to its tangent if it is a dual number."""
    primal, tangent = forward_ad.unpack_dual(tensor)
    if tangent is None:
        return collective(tensor)
    result: Tensor = forward_ad.make_dual(collective(primal), collective(tangent))
    return result


@torch.no_grad()
def share_gradients(
    parts: Iterable[Tensor], wholes: Iterable[Tensor], processes: Processes
) -> None:
    """Add up the gradients of parameters that saw parts of a batch; average those that saw all.

    The latter are equal already, up to the order in which a GPU adds; averaging keeps them equal.
    """
    weighted = [(p, 1.0) for p in parts] + [(p, 1 / processes.count) for p in wholes]
    by_dtype: dict[torch.dtype, list[tuple[Tensor, float]]] = {}
    for parameter, weight in weighted:
        if parameter.grad is not None:
            by_dtype.setdefault(parameter.grad.dtype, []).append((parameter.grad, weight))

    # One exchange per dtype: all gradients travel in one flat tensor.
    for gradients in by_dtype.values():
        flat = torch.cat([g.flatten() if w == 1 else g.flatten() * w for g, w in gradients])
        sums = processes.total(flat).split([g.numel() for g, _ in gradients])
        for (gradient, _), new in zip(gradients, sums, strict=True):
            gradient.copy_(new.view(gradient.shape))
