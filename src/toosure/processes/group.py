"""The processes of one run: which of them this is, and how they agree."""

import atexit
import gc
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # the longest wait for a process that does not answer
TOGETHER = timedelta(seconds=20)  # how long one that failed waits for the others to fail alike


@dataclass(frozen=True)
class Processes:
    """Know this process among the others; alone, everything here costs nothing.

    >>> Processes().any(False, True), Processes().rows(10)
    ((False, True), slice(0, 10, None))
    >>> [Processes(rank, 3).rows(10) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """

    rank: int = 0
    count: int = 1
    group: Any = None  # exchanges tensors where they lie
    host: Any = None  # exchanges what the hosts decide: a GPU need not wait for it
    failing: Any = None  # where those that failed meet: nobody waits long there

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and decides."""
        return self.rank == 0

    def rows(self, n: int) -> slice:
        """Return which of n rows are ours; shares differ by one row at most."""
        return slice(self.rank * n // self.count, (self.rank + 1) * n // self.count)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return each flag as it stands if any process has raised it."""
        if self.count == 1:
            return flags
        return tuple(bool(flag) for flag in self.largest(*flags))

    def largest(self, *numbers: int) -> list[int]:
        """Return the largest of each number over all processes."""
        if self.count == 1:
            return list(numbers)
        found = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.host)
        return found.tolist()

    def broadcast(self, value: Any) -> Any:
        """Return the value of the first process, in all of them."""
        if self.count == 1:
            return value
        box = [value if self.first else None]
        dist.broadcast_object_list(box, 0, group=self.host)
        return box[0]

    def in_turn(self, act: Callable[[], T]) -> T:
        """Let the first process act before the others: what it fetches is there for them."""
        try:
            if not self.first:
                self.largest(0)
            return act()
        finally:
            if self.first:
                self.largest(0)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over all processes, in a new tensor; half precision is summed wide."""
        floating = tensor.is_floating_point()
        dtype = torch.promote_types(tensor.dtype, torch.float32) if floating else tensor.dtype
        wide = tensor.to(dtype, copy=True)
        if self.count > 1:
            dist.all_reduce(wide, group=self.group)
        return wide.to(tensor.dtype)

    def gathered(self, part: Tensor, n: int) -> Tensor:
        """Return all n rows, of which every process has its part."""
        if self.count == 1:
            return part
        mine = self.rows(n)
        if len(part) != mine.stop - mine.start:
            raise ValueError(
                f"a network must give one row of outputs an example: got {len(part)} for "
                f"{mine.stop - mine.start}"
            )
        whole = part.new_zeros(n, *part.shape[1:])
        whole[mine] = part.detach()
        return self.total(whole)

    def all_failed(self) -> bool:
        """Whether the others fail too, so that all can go on to the next run side by side."""
        try:
            dist.all_reduce(torch.zeros(1), group=self.failing)
        except RuntimeError:
            return False
        return True


ALONE = Processes()


def join(device: torch.device) -> Processes:
    """Return the processes that torchrun started, joined; without torchrun, this one alone.

    GPUs speak NCCL where each process has one; on CPUs, and where processes share one, it is gloo.
    """
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
            return ALONE
        dist.init_process_group("gloo", timeout=TIMEOUT)
    if dist.get_world_size() == 1:
        return ALONE
    return Processes(dist.get_rank(), dist.get_world_size(), *groups(dist.group.WORLD, device))


@cache
def groups(world: Any, device: torch.device) -> tuple[Any, Any, Any]:
    """Make the groups that exchange tensors, in which hosts agree, and in which they fail, once."""
    atexit.register(leave)
    host = dist.new_group(backend="gloo", timeout=TIMEOUT)
    failing = dist.new_group(backend="gloo", timeout=TOGETHER)
    if device.type != "cuda" or dist.get_backend(world) == "nccl":
        return world, host, failing
    torch.cuda.set_device(device)
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, (socket.gethostname(), str(device)), group=host)
    if len(set(places)) < len(places):
        return world, host, failing
    return dist.new_group(backend="nccl", timeout=TIMEOUT), host, failing


def leave() -> None:
    """End the conversation in order."""
    groups.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()  # a group's threads end with the last reference to it


def end(code: Any) -> NoReturn:
    """End this process with the code of a `SystemExit`, not by way of Python's own shutdown.

    A thread of gloo that lets go of a tensor while Python shuts down aborts the process, and
    torchrun would call a complete run failed.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def local_rank() -> int | None:
    """Return the place of this process on its machine, as torchrun says it."""
    return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None


def local_count() -> int:
    """Return how many processes of this run torchrun started on this machine."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
