"""A watch in several processes: shared outputs, shared buffers, shared errors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from toosure.processes import Processes, join
from toosure.processes.group import is_lost
from toosure.processes.sync_batch_norm import norm_statistics


class JointMeasurement:
    """Measure the first process's model in all processes, each on its share of the examples."""

    def __init__(self, processes: Processes, model: nn.Module, objective: object) -> None:
        self.processes = processes
        self.buffers = list(model.buffers())
        if isinstance(objective, nn.Module):
            self.buffers += norm_statistics(objective)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Use the first process's buffers inside, and turn a lost process into one sentence.

        Under DDP the running statistics of BatchNorm differ between processes until the next pass.
        The first process's statistics are saved with the model, so these are measured. Every
        process has its own back afterwards.
        """
        if self.processes.count == 1:
            yield
            return

        own = [buffer.clone() for buffer in self.buffers]
        try:
            with explaining_lost_processes(self.processes):
                self.processes.copy_from_first(self.buffers)
                yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(self.buffers, own, strict=True):
                    buffer.copy_(before)

    def gathered(
        self, own_outputs: Callable[[], list[Tensor]], counts: Sequence[int]
    ) -> list[Tensor]:
        """Return the outputs of all processes on each split; if one process fails, all raise."""
        outputs: list[Tensor] = []
        error: Exception | None = None
        try:
            outputs = own_outputs()
        except Exception as raised:
            error = raised

        (failed,) = self.processes.any(error is not None)
        if failed:
            self.fail(error)
        return self.processes.gathered_together(outputs, counts)

    def fail(self, error: Exception | None) -> None:
        """Raise this process's error, or one that names the process that failed."""
        text = "" if error is None else f"{type(error).__name__}: {error}"
        texts = self.processes.everyones(text)
        if error is not None:
            raise error
        rank, first = next((rank, message) for rank, message in enumerate(texts) if message)
        raise RuntimeError(
            f"process {rank} of {self.processes.count} failed while it measured, so this one ends "
            f"too: {first.splitlines()[0]}"
        )


@contextmanager
def explaining_lost_processes(processes: Processes) -> Iterator[None]:
    """Turn the error of a collective into one sentence if another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        raise RuntimeError(
            f"process {processes.rank} of {processes.count} cannot measure: another has ended or "
            "does not answer; its own message says why"
        ) from error


def processes_of(processes: "Processes | Literal['all']", device: torch.device) -> Processes:
    """Return the processes that measure together; "all" means those of torch.distributed."""
    if processes == "all":
        return join(device)
    if not isinstance(processes, Processes):
        raise ValueError(
            f'processes must be "all", or what toosure.processes.join returns; got {processes!r}'
        )
    return processes


def without_ddp(model: nn.Module) -> nn.Module:
    """Return the network inside DistributedDataParallel, whose forward waits for the others."""
    inner = getattr(model, "_orig_mod", model)  # torch.compile around it
    return inner.module if isinstance(inner, DistributedDataParallel) else model
