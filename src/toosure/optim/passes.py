"""What every two-pass optimizer needs: restored weights, the gradient's norm, the ascent step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from toosure.processes.dtensor import (
    aligned,
    any_sharded,
    is_sharded,
    local_shards,
    sum_over_shards,
)

Item = TypeVar("Item")


@contextmanager
def weights_restored(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Let the weights change inside, and restore them to the same bits, also after an error.

    They are saved and copied back (w + e - e is not w in floating point), which costs one copy, of
    this process's shards where they are sharded.
    """
    with torch.no_grad():
        shards = local_shards(parameters)
    saved = copies(shards)
    try:
        yield
    finally:
        if saved:  # foreach calls refuse empty lists
            torch._foreach_copy_(shards, saved)


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy all tensors in one call by multiplying by 1, as torch has no foreach clone."""
    return list(torch._foreach_mul(list(tensors), 1)) if tensors else []


def being_recorded(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being recorded on this tensor's device."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def dense_gradient(parameter: Tensor) -> Tensor:
    """Return the gradient of a parameter that has one, after making a sparse one dense.

    The copy of a sharded parameter has the same sharding.
    """
    assert parameter.grad is not None
    if parameter.grad.is_sparse:
        parameter.grad = parameter.grad.to_dense()
    elif is_sharded(parameter):
        parameter.grad = aligned(parameter.grad, parameter)
    return parameter.grad


def with_dense_gradient(p: Tensor) -> Tensor:
    """Return the parameter, or a stand-in with the values of its sparse gradient."""
    if p.grad is None or not p.grad.is_sparse:
        return p

    p.grad = p.grad.coalesce()  # else a row that occurs twice would count twice
    values = p.grad._values()
    stand_in = values.detach()
    stand_in.grad = values
    return stand_in


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all tensors together, without waiting for the device.

    Half precision is summed in float32: a bfloat16 norm has three digits, a float16 one overflows.
    Of sharded tensors it is the norm over all shards, by one collective.
    """
    if not tensors:
        return torch.zeros(())

    wide = reduce(torch.promote_types, {t.dtype for t in tensors}, torch.float32)
    norms = list(torch._foreach_norm(local_shards(tensors), 2, wide))
    if len({n.device for n in norms}) > 1:
        norms = [n.to(norms[0].device) for n in norms]
    if any_sharded(tensors):
        return sum_over_shards(tensors, [n.square() for n in norms]).sqrt()
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def by_member(
    items: Sequence[Item], group_of: Callable[[Item], Any] = lambda group: group
) -> list[list[Item]]:
    """Sort parameter groups by their network (`member`), if several are trained together.

    Other items are sorted by their `group_of`.

    >>> [len(part) for part in by_member([{"member": 0}, {"member": 1}, {"member": 0}])]
    [2, 1]
    """
    parts: dict[Any, list[Item]] = {}
    for item in items:
        parts.setdefault(group_of(item).get("member"), []).append(item)
    return list(parts.values())


def clip_each_member_(groups: Sequence[dict[str, Any]], largest: float) -> None:
    """Scale gradients down to a norm, per member if several networks are trained together."""
    for part in by_member(groups):
        trained = [p for group in part for p in group["params"] if p.grad is not None]
        clip_([with_dense_gradient(p) for p in trained], largest)


def clip_(parameters: Sequence[Tensor], largest: float) -> None:
    """Scale gradients down to a norm, as torch does; the norm of shards is over all of them.

    torch's own function cannot mix plain and sharded parameters.
    """
    if not any_sharded(parameters):
        clip_grad_norm_(parameters, largest)
        return

    gradients = [dense_gradient(p) for p in parameters]
    scale = (largest / (global_norm(gradients) + 1e-6)).clamp(max=1.0)
    for gradient in local_shards(gradients):
        gradient.mul_(scale.to(gradient))


def climb_(
    parameters: list[Tensor],
    directions: list[Tensor],
    radius: float | Tensor,
    norm: Tensor,
    keep: bool = False,
) -> None:
    """Add radius * directions / (norm + 1e-12) to the parameters, in place.

    `directions` may be overwritten unless `keep`. On the CPU reading the norm is free and saves a
    pass over memory; elsewhere the host would have to wait for it. A radius that changes between
    the replays of a CUDA graph is a tensor.
    """
    parameters = local_shards(parameters)
    directions = local_shards(directions)
    if norm.device.type == "cpu":
        torch._foreach_add_(parameters, directions, alpha=float(radius) / (norm.item() + 1e-12))
    else:
        climb_without_waiting_(parameters, directions, radius, norm, keep)


def climb_without_waiting_(
    parameters: list[Tensor],
    directions: list[Tensor],
    radius: float | Tensor,
    norm: Tensor,
    keep: bool,
) -> None:
    """Do the same as `climb_` with a norm on the device, without reading it on the host.

    torch's fused SGD is the one call that adds a multiple known only to the device: it divides by
    `grad_scale` (and overwrites the gradients), or multiplies by a tensor `lr`.
    """
    norm = norm + 1e-12
    if not _suits_fused(parameters, directions):
        if isinstance(radius, Tensor):
            # As an alpha it would be read on the host.
            norm = norm / radius
            radius = 1.0
        scaled = torch._foreach_div(directions, norm.to(parameters[0].dtype))
        torch._foreach_add_(parameters, scaled, alpha=radius)
        return

    torch._fused_sgd_(
        parameters,
        directions,
        [],  # no momentum
        weight_decay=0.0,
        momentum=0.0,
        lr=radius / norm if keep else radius,
        dampening=0.0,
        nesterov=False,
        maximize=True,
        is_first_step=False,
        grad_scale=None if keep else norm,
    )


def _suits_fused(parameters: list[Tensor], directions: list[Tensor]) -> bool:
    """Whether all are float32 (as the scale is read), without gaps and with the same strides."""
    return all(
        p.dtype == d.dtype == torch.float32
        and p.stride() == d.stride()
        and (p.is_contiguous() or p.is_contiguous(memory_format=torch.channels_last))
        for p, d in zip(parameters, directions, strict=True)
    )
