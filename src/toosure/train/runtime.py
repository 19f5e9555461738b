"""The runtime of a run: device, threads, data folder; not part of its id."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from toosure.processes.group import local_rank
from toosure.shifts.plan import ShiftPlan

MAX_THREADS = 1024  # torch crashes if the system refuses it threads
STEPS_TO_SEARCH = 2500  # of a recorded run that make a search for fast kernels worthwhile


@dataclass(frozen=True)
class Runtime:
    """How and where to train: device, threads, data folder. None of it is part of a run's id.

    `device=None` takes the GPU if there is one. `compile` uses torch.compile; `graph` replays
    forward, backward and step as one CUDA graph. `checkpoint` is the time between checkpoints, in
    seconds. `threads` is the number of CPU threads of a run; None leaves it to torch, or takes one
    if a GPU trains. Another number of threads may change the last bits of sums. `decoders` is the
    number of processes that decode images of a streamed folder; None takes one per core, and the
    processes of torchrun share the cores. `shifts` names the corrupted and unknown images that a
    run is judged on at its end.

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
        if isinstance(self.shifts, Mapping):  # sent by another process
            object.__setattr__(self, "shifts", ShiftPlan(**self.shifts))

        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(f"threads must be from 1 to {MAX_THREADS:,}; got {self.threads}")

        device = self.torch_device
        if self.graph and device.type != "cuda":
            raise ValueError(
                f"graph needs CUDA, but the device is {device}: leave it out, or train on a GPU"
            )

    @property
    def torch_device(self) -> torch.device:
        """The device as a torch.device; raises if it cannot be used."""
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
        """Let torch compute with `threads` threads inside."""
        before = torch.get_num_threads()
        default = 1 if self.torch_device.type == "cuda" else before
        torch.set_num_threads(self.threads or default)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def searched_kernels(self, steps: int) -> Iterator[None]:
        """Let cuDNN time its convolutions and keep the fastest, if the run is long enough.

        The search takes about 9 s, once per process; benchmarks/results/fused_norms.md has its
        gain. cuDNN keeps the first kernel that a shape of convolution ran with, so shapes that ran
        before are not searched.
        """
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = before or (self.graph and steps >= STEPS_TO_SEARCH)
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before


def gpu_of_rank(rank: int) -> torch.device:
    """Return the GPU for a process by its rank on the machine, as torchrun counts."""
    count = torch.cuda.device_count()
    if rank >= count:
        raise ValueError(
            f"process {rank} of this machine has no GPU of its own: there are {count}. Start "
            "fewer, or give --device cuda:0 (they share it) or cpu"
        )
    return torch.device("cuda", rank)
