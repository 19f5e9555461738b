"""The runtime of a run: device, threads, data folder; not part of its id."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from toosure.processes.group import local_rank
from toosure.shifts.plan import ShiftPlan

MAX_THREADS = 1024  # torch dies where the system refuses it as many as it asks for
STEPS_TO_SEARCH = 2500  # of a recorded run, from which on a search for fast kernels pays


@dataclass(frozen=True)
class Runtime:
    """Say where the data are, on which device to train and how; none of it is part of a run's id.

    `device=None` takes the GPU where there is one. `compile` uses torch.compile; `graph` replays
    forward, backward and step as one CUDA graph. `checkpoint` is the time between checkpoints, in
    seconds. `threads` is the number of CPU threads of a run. None leaves it to torch, or is one
    thread where a GPU trains, since what is left to the CPU is then too small to share. Sums over
    another number of threads may differ in their last bits. `decoders` is the number of processes
    that decode the images of a streamed folder. None is one per core; the processes of torchrun
    share the cores. `shifts` says on which corrupted and unknown images a run is judged at its end.

    Several processes (torchrun) train by torch's DistributedDataParallel, each on its share of a
    batch; with `sync_batchnorm` BatchNorm sees the whole batch. `exact` gives the numbers of one
    process instead, more slowly: docs/scale.md.
    """

    device: str | None = None
    data_root: Path = Path("data")
    download: bool = False
    compile: bool = False
    graph: bool = False
    checkpoint: float = 30.0
    threads: int | None = None
    decoders: int | None = None
    shifts: ShiftPlan | None = None
    exact: bool = False
    sync_batchnorm: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_root", Path(self.data_root))
        if isinstance(self.shifts, Mapping):  # as it comes from another process
            object.__setattr__(self, "shifts", ShiftPlan(**self.shifts))

        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(f"threads must be from 1 to {MAX_THREADS:,}; got {self.threads}")

        device = self.torch_device
        if self.graph and device.type != "cuda":
            raise ValueError(
                f"graph replays CUDA graphs, and the device is {device}: leave it out, or train on "
                "a GPU"
            )

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it; one that cannot be used is an error."""
        if self.device is None and not torch.cuda.is_available():
            return torch.device("cpu")

        try:
            device = torch.device(self.device or "cuda")
            if device == torch.device("cuda") and (rank := local_rank()) is not None:
                device = gpu_of_rank(rank)
            # Only using a device shows whether it is there.
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"device {self.device!r} cannot be used: {reason}; write cpu, cuda or cuda:1"
            ) from error
        return device

    @contextmanager
    def cpu_threads(self) -> Iterator[None]:
        """Inside, torch computes with `threads` threads."""
        before = torch.get_num_threads()
        default = 1 if self.torch_device.type == "cuda" else before
        torch.set_num_threads(self.threads or default)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def searched_kernels(self, steps: int) -> Iterator[None]:
        """Inside, cuDNN times its convolutions and keeps the fastest, where a run is long enough.

        The search takes about 9 s, once in a process; what it gives is in
        benchmarks/results/fused_norms.md. cuDNN keeps the first kernel that a shape of convolution
        ran with, so a shape that ran outside is not searched again.
        """
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = before or (self.graph and steps >= STEPS_TO_SEARCH)
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before


def gpu_of_rank(rank: int) -> torch.device:
    """Return the GPU of the process with this rank on its machine, as torchrun counts them."""
    count = torch.cuda.device_count()
    if rank >= count:
        raise ValueError(
            f"process {rank} of this machine has no GPU of its own: there are {count}. Start "
            "fewer, or give --device cuda:0 (they share it) or cpu"
        )
    return torch.device("cuda", rank)
