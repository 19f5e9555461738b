"""One process of a distributed run: its rank, its share of the rows, and its collectives."""

import atexit
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # the longest wait for a process that does not answer
FAILURE_TIMEOUT = timedelta(seconds=20)  # the wait of a failed process for the others to fail too


@dataclass(frozen=True)
class Processes:
    """One process of a distributed run: its rank, its share of the rows, and its collectives.

    Collectives exchange flags, numbers, objects and tensors. In a run of one process each returns
    at once.

    >>> Processes().any(False, True), Processes().rows(10)
    ((False, True), slice(0, 10, None))
    >>> [Processes(rank, 3).rows(10) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """

    rank: int = 0
    count: int = 1
    group: "dist.ProcessGroup | None" = None  # for tensors, on their device
    host: "dist.ProcessGroup | None" = None  # for decisions: a GPU need not wait for them
    failing: "dist.ProcessGroup | None" = None  # for failed processes, with a short timeout

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and decides."""
        return self.rank == 0

    def rows(self, n: int) -> slice:
        """Return which of n rows are ours; shares differ by one row at most."""
        return slice(self.rank * n // self.count, (self.rank + 1) * n // self.count)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether any process has raised it."""
        if self.count == 1:
            return flags
        return tuple(bool(flag) for flag in self.largest(*flags))

    def largest(self, *numbers: int) -> list[int]:
        """Return the largest of each number over all processes."""
        if self.count == 1:
            return list(numbers)
        maxima = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(maxima, dist.ReduceOp.MAX, group=self.host)
        return maxima.tolist()

    def broadcast(self, value: T) -> T:
        """Return the first process's value in every process."""
        if self.count == 1:
            return value
        values = [value]  # overwritten in every process but the first
        dist.broadcast_object_list(values, 0, group=self.host)
        return values[0]

    def everyones(self, value: T) -> list[T]:
        """Return the value of every process, in the order of the ranks."""
        values: list[T] = [value] * self.count  # overwritten by all processes' own
        if self.count > 1:
            dist.all_gather_object(values, value, group=self.host)
        return values

    def in_turn(self, act: Callable[[], T]) -> T:
        """Let the first process act before the others, which then find what it downloaded."""
        # `largest` serves as a barrier: the others reach theirs before acting, the first after it.
        try:
            if not self.first:
                self.largest(0)
            return act()
        finally:
            if self.first:
                self.largest(0)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over all processes in a new tensor; half precision sums in float32."""
        dtype = tensor.dtype
        if tensor.is_floating_point():
            dtype = torch.promote_types(dtype, torch.float32)
        total = tensor.to(dtype, copy=True)
        if self.count > 1:
            dist.all_reduce(total, group=self.group)
        return total.to(tensor.dtype)

    def gathered(self, part: Tensor, n: int) -> Tensor:
        """Return all n rows, of which every process has its part."""
        (whole,) = self.gathered_together([part], [n])
        return whole

    def gathered_together(self, parts: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
        """Return the rows of several tensors, of which every process has its parts, at once."""
        if self.count == 1:
            return list(parts)

        # Shares may differ by a row, so parts are summed into place instead of gathered.
        wholes = [self.in_place(part, n) for part, n in zip(parts, counts, strict=True)]
        flat = torch.cat([whole.flatten() for whole in wholes])
        sums = self.total(flat).split([whole.numel() for whole in wholes])
        return [s.view_as(whole).to(whole) for s, whole in zip(sums, wholes, strict=True)]

    def in_place(self, part: Tensor, n: int) -> Tensor:
        """Return n rows, zero except for this process's own."""
        own_rows = self.rows(n)
        own_count = own_rows.stop - own_rows.start
        if len(part) != own_count:
            raise ValueError(
                f"a network must give one row of outputs per example: got {len(part)} for "
                f"{own_count}"
            )
        whole = part.new_zeros(n, *part.shape[1:])
        whole[own_rows] = part.detach()
        return whole

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with the first process's: one exchange per dtype."""
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_dtype.setdefault(tensor.dtype, []).append(tensor.detach())
        if self.count == 1:
            return

        for group in by_dtype.values():
            flat = torch.cat([tensor.flatten() for tensor in group])
            dist.broadcast(flat, 0, group=self.group)
            parts = flat.split([tensor.numel() for tensor in group])
            for tensor, part in zip(group, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))

    def __deepcopy__(self, memo: object) -> "Processes":
        """Return itself: a copy of a network talks to the same processes."""
        return self

    def all_failed(self) -> bool:
        """Return whether the other processes fail too, so that all can go on to the next run."""
        try:
            dist.all_reduce(torch.zeros(1), group=self.failing)
        except RuntimeError:
            return False
        return True


ALONE = Processes()


def join(device: torch.device) -> Processes:
    """Return the group of processes that torchrun started; without torchrun, this one alone.

    Where each process has a GPU of its own they communicate by NCCL; on CPUs, and where processes
    share a GPU, by gloo.
    """
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
            return ALONE
        dist.init_process_group("gloo", timeout=TIMEOUT)
    if dist.get_world_size() == 1:
        return ALONE
    return Processes(dist.get_rank(), dist.get_world_size(), *make_groups(dist.group.WORLD, device))


@cache
def make_groups(
    world: "dist.ProcessGroup | None", device: torch.device
) -> "tuple[dist.ProcessGroup | None, ...]":
    """Make, once per run, the groups for tensors, for decisions and for failed processes."""
    atexit.register(leave)
    host = dist.new_group(backend="gloo", timeout=TIMEOUT)
    failing = dist.new_group(backend="gloo", timeout=FAILURE_TIMEOUT)
    if device.type != "cuda" or dist.get_backend(world) == "nccl":
        return world, host, failing

    # NCCL needs one GPU per process: compare where all of them are.
    torch.cuda.set_device(device)
    places: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(places, (socket.gethostname(), str(device)), group=host)
    if len(set(places)) < len(places):
        return world, host, failing
    return dist.new_group(backend="nccl", timeout=TIMEOUT), host, failing


def is_lost(error: RuntimeError) -> bool:
    """Whether a collective failed because another process is gone or silent."""
    gone = ("gloo", "Connection closed", "Connection reset", "Timed out", "NCCL")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in gone)


def leave() -> None:
    """Close all groups in order."""
    make_groups.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()  # a group's threads end with the last reference to it


def end(code: object) -> NoReturn:
    """End this process with the code of a `SystemExit`, skipping Python's own shutdown.

    A gloo thread that frees a tensor while Python shuts down aborts the process, and torchrun
    would report a complete run as failed.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def local_rank() -> int | None:
    """Return the rank of this process on its machine, as torchrun gives it."""
    return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None


def local_count() -> int:
    """Return how many processes of this run torchrun started on this machine."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
