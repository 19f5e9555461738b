"""Tensors sharded over processes (DTensor, as FSDP2 makes them): own shards, and sums over all.

Element-wise work is done on each process's own shards, without DTensor's cost per call. Only a sum
needs the other processes: one collective each.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: object) -> "TypeGuard[DTensor]":
    """Return whether this is a DTensor; without importing its module, which takes a second."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def any_sharded(tensors: Iterable[object]) -> bool:
    """Return whether there is a DTensor among these."""
    loaded = "torch.distributed.tensor" in sys.modules
    return loaded and any(is_sharded(tensor) for tensor in tensors)


def local_shards(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return this process's shard of each DTensor, to be changed in place; keep other tensors.

    Call it without gradient recording.
    """
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return list(tensors)
    kind = module.DTensor
    return [t.to_local() if isinstance(t, kind) else t for t in tensors]


def placed_like(whole: Tensor, like: "DTensor") -> "DTensor":
    """Shard a tensor that every process has in full as another is sharded, without communication.

    `whole` must have the dimensions that `like` is sharded along.
    """
    from torch.distributed.tensor import DTensor, Replicate

    everywhere = [Replicate()] * like.device_mesh.ndim
    replicated = DTensor.from_local(whole, like.device_mesh, everywhere, run_check=False)
    return replicated.redistribute(placements=like.placements)


def aligned(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a DTensor placed as another is, after summing or moving its shards where needed."""
    if is_sharded(tensor) and is_sharded(like) and tensor.placements != like.placements:
        return tensor.redistribute(placements=like.placements)
    return tensor


def summing_groups(tensor: Tensor) -> "tuple[dist.ProcessGroup, ...]":
    """Return the groups over which the shards of a tensor add up to the whole; none if plain."""
    if not is_sharded(tensor):
        return ()
    mesh = tensor.device_mesh
    sharded = [i for i, place in enumerate(tensor.placements) if not place.is_replicate()]
    return tuple(mesh.get_group(i) for i in sharded)


def sum_over_shards(tensors: Sequence[Tensor], numbers: Sequence[Tensor]) -> Tensor:
    """Add up one number per tensor, each of this process's shard, over all shards.

    Tensors with the same sharding share one collective per dimension of their mesh.
    """
    alike: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = {}
    for tensor, number in zip(tensors, numbers, strict=True):
        alike.setdefault(summing_groups(tensor), []).append(number)

    parts = []
    for groups, own in alike.items():
        part = torch.stack(own).sum()
        for group in groups:
            dist.all_reduce(part, group=group)
        parts.append(part)
    return torch.stack(parts).sum()


def ranks_of(tensors: Iterable[Tensor]) -> "tuple[dist.ProcessGroup, ...]":
    """Return the groups of all processes that hold parts of these tensors; none if all are plain.

    There is one group per dimension of the mesh, and a sum over all processes goes through each.
    """
    first = next((t for t in tensors if is_sharded(t)), None)
    if first is None:
        return ()
    mesh = first.device_mesh
    return tuple(mesh.get_group(i) for i in range(mesh.ndim))


def reduced(
    number: Tensor,
    groups: "Sequence[dist.ProcessGroup]",
    how: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
) -> Tensor:
    """Return the sum (or maximum) of a tensor over the processes of these groups."""
    total = number.clone() if groups else number
    for group in groups:
        dist.all_reduce(total, how, group=group)
    return total


def forward_parts(x: Tensor, chunk: int, weights: Iterable[Tensor]) -> Sequence[Tensor]:
    """Cut inputs into parts of at most `chunk` for forward passes.

    Where FSDP2 shards the weights every forward pass is a collective, so that all processes get as
    many parts as the one with the most inputs needs.
    """
    first = next((t for t in weights if is_sharded(t)), None)
    if first is None:
        parts: Sequence[Tensor] = x.split(chunk)
        return parts
    own = torch.tensor(-(-len(x) // chunk), device=first.device)
    return x.tensor_split(int(reduced(own, ranks_of([first]), dist.ReduceOp.MAX)))


def processes_in(groups: "Sequence[dist.ProcessGroup]") -> int:
    """Return how many processes the dimensions of a mesh have together."""
    return math.prod(dist.get_world_size(group) for group in groups)


@contextmanager
def resharded_after(model: nn.Module) -> Iterator[None]:
    """Around forward passes without backward: afterwards FSDP2 holds shards only.

    FSDP2 keeps the gathered weights of its root for the backward pass. Without one, the next
    forward pass would use them although the shards have changed.
    """
    try:
        yield
    finally:
        reshard(model)


def reshard(model: nn.Module) -> None:
    """Free the gathered weights of every part of a model that FSDP2 shards."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()
