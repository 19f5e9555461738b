"""By what means a run is carried out: what changes its time, and not its numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from toosure.processes.group import local_rank


@dataclass(frozen=True)
class Means:
    """Say where data lie, on which device to train and how fast; none of it is part of a run's id.

    `device=None` takes the GPU where there is one. `compile` uses torch.compile; `graph` replays
    forward, backward and step as one CUDA graph. `checkpoint` is the time between checkpoints, in
    seconds. `threads` is how many a run uses on the CPU, None for torch's choice, or for one where
    a GPU trains: what is left to the CPU then is too small to share. Sums over another number of
    threads may differ in their last bits. `decoders` is how many processes decode the images of a
    folder that is streamed, None for one a core; the processes of torchrun share the cores.
    """

    device: str | None = None
    data_root: Path = Path("data")
    download: bool = False
    compile: bool = False
    graph: bool = False
    checkpoint: float = 30.0
    threads: int | None = None
    decoders: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_root", Path(self.data_root))
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1; got {self.threads}")
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
            if device == torch.device("cuda") and (place := local_rank()) is not None:
                device = own_gpu(place)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            first = str(error).splitlines()[0]
            raise ValueError(f"device {self.device!r} cannot be used: {first}") from error
        return device

    @contextmanager
    def threading(self) -> Iterator[None]:
        """Inside, torch computes with `threads` threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or (1 if self.torch_device.type == "cuda" else before))
        try:
            yield
        finally:
            torch.set_num_threads(before)


def own_gpu(place: int) -> torch.device:
    """Return the GPU of the process that torchrun numbered so on this machine."""
    count = torch.cuda.device_count()
    if place >= count:
        raise ValueError(
            f"process {place} of this machine has no GPU of its own: there are {count}. Start "
            "fewer, or give --device cuda:0 (they share it) or cpu"
        )
    return torch.device("cuda", place)
