"""BatchNorm over the shares of all processes: torch's on a GPU, and ours on the CPU."""

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from toosure.processes.group import ALONE, Processes
from toosure.processes.whole_batch import batch_norm


class SyncBatchNorm(nn.SyncBatchNorm):
    """Torch's layer, on a GPU, in a given group of processes."""

    processes: Processes = ALONE

    @property
    def process_group(self) -> "dist.ProcessGroup | None":  # type: ignore[override]
        """The group of the processes: a property, so that a copy of the layer shares it."""
        return self.processes.group


class HostSyncBatchNorm(_BatchNorm):
    """The same on the CPU, where torch has none."""

    processes: Processes = ALONE

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"BatchNorm needs inputs of 2 dimensions or more; got {input.ndim}")

    def forward(self, input: Tensor) -> Tensor:
        return batch_norm(self, self.processes, input) if self.training else super().forward(input)


def sync_batch_norm(model: nn.Module, processes: Processes) -> None:
    """Let every BatchNorm of a network use the rows of all processes, in place.

    The layers stay the same objects, with the same parameters and names in a state dict.
    """
    on_gpu = next(model.parameters()).device.type == "cuda"
    kind = SyncBatchNorm if on_gpu else HostSyncBatchNorm
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.__class__ = kind
            layer.processes = processes  # type: ignore[assignment]


def norm_statistics(module: nn.Module) -> list[Tensor]:
    """Return the running statistics of all normalisation layers of a module."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return [buffer for layer in layers for buffer in layer.buffers(recurse=False)]
