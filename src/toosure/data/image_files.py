"""Images that stay on disk: worker processes decode them, ahead of the training loop."""

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from toosure.data.corruptions import Shift, corrupt_part, images_per_part
from toosure.data.decode import read_image
from toosure.data.shard_index import MemberFile, read_member
from toosure.data.standardise import standardised

MAX_DECODERS = 16  # worker processes, however many cores there are
CHUNK = 256  # images decoded together by default
T = TypeVar("T")


class BatchDecoder(Dataset[Tensor | str]):
    """Decode the images at some indices into one uint8 batch (B, 3, size, size)."""

    def __init__(self, names: np.ndarray, size: int, resize: int | None) -> None:
        self.names = names
        self.size = size
        self.resize = resize

    def __getitems__(self, indices: list[int]) -> Tensor | str:
        """Return the batch, or an error message: an exception would arrive as a traceback."""
        batch = torch.empty(len(indices), 3, self.size, self.size, dtype=torch.uint8)
        try:
            for target, name in zip(batch, self.names[indices], strict=True):
                target.copy_(read_image(image_file(name), self.size, self.resize))
        except ValueError as error:
            return str(error)
        return batch


def image_file(name: bytes | np.void) -> str | MemberFile:
    """Return what to open: the path of a file, or the content of a shard's member."""
    return read_member(name) if isinstance(name, np.void) else os.fsdecode(name)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Replace the tensor x of a split with images on disk, which are read in parts.

    It has a length, a shape and a device, and `split` yields standardised parts. Names are one
    array of bytes, which worker processes share; they would copy a list of strings. `workers=None`
    takes one process per core, at most 16; 0 decodes in this process.
    """

    names: np.ndarray  # (N,) paths as bytes, or places in shards
    size: int
    mean: Tensor
    std: Tensor
    workers: int | None = None
    shift: Shift | None = None  # a corruption applied as the images are read in order
    seed: int = 0  # of the shift
    resize: int | None = None  # the shorter side before the cut to `size`, if it differs

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.names), 3, self.size, self.size))

    @property
    def device(self) -> torch.device:
        return self.mean.device

    def __len__(self) -> int:
        return len(self.names)

    def to(self, device: torch.device | str) -> "ImageFiles":
        """Yield parts on a device from now on; nothing is copied."""
        return replace(self, mean=self.mean.to(device), std=self.std.to(device))

    def double(self) -> "ImageFiles":
        """Yield parts in double precision from now on."""
        return replace(self, mean=self.mean.double(), std=self.std.double())

    def split(self, chunk: int = CHUNK) -> Iterator[Tensor]:
        """Yield all images in order, standardised, in parts of at most `chunk`."""
        chunk = min(chunk, CHUNK)
        # A shift is drawn for the same groups of images as in memory, whatever the parts are.
        batch = chunk if self.shift is None else images_per_part(self.size, self.size)
        batches = self.read_batches(torch.arange(len(self)).split(batch))

        for number, pixels in enumerate(batches):
            part = pixels.to(self.device, non_blocking=True)
            if self.shift is not None:
                part = corrupt_part(part, *self.shift, self.seed, number)
            for chunk_pixels in part.split(chunk):
                yield standardised(chunk_pixels, self.mean, self.std)

    def read_batches(
        self, batches: Iterable[Tensor] | None = None
    ) -> Generator[Tensor, None, None]:
        """Yield a uint8 batch for each tensor of indices; without them, all images in order."""
        if batches is None:
            batches = torch.arange(len(self)).split(CHUNK)
        workers = usable_cores() if self.workers is None else self.workers

        loader: DataLoader[Tensor | str] = DataLoader(
            BatchDecoder(self.names, self.size, self.resize),
            batch_sampler=IndexLists(batches),
            collate_fn=identity,
            num_workers=workers,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=start_worker if workers else None,
            generator=torch.Generator(),  # else it would draw a seed from torch's global generator
        )
        for batch in loader:
            if isinstance(batch, str):
                raise ValueError(batch)
            yield batch


class IndexLists:
    """Turn tensors of indices into the lists that a DataLoader takes, one at a time."""

    def __init__(self, batches: Iterable[Tensor]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return (indices.tolist() for indices in self.batches)


def identity(batch: T) -> T:
    return batch


def start_worker(worker: int) -> None:
    """Leave Ctrl-C, a closed terminal and inherited objects to the main process.

    A worker whose garbage collector frees an inherited CUDA tensor dies with a device error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.freeze()


def usable_cores() -> int:
    """Return how many cores this process may decode on, at most `MAX_DECODERS`."""
    return min(MAX_DECODERS, available_cores())


def available_cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class StreamedBatches:
    """Read the batch of a training step from disk while workers decode the following ones.

    `indices_at(step)` returns the indices of the images of a step, on the CPU. Steps are read one
    after another; any other step restarts the workers there, so that a resumed run sees the same
    batches. `share` is the part of each batch that this process decodes.
    """

    def __init__(
        self, files: ImageFiles, indices_at: Callable[[int], Tensor], share: slice = slice(None)
    ) -> None:
        self.files = files
        self.indices_at = indices_at
        self.share = share
        self.next_step = -1
        self.requested: deque[Tensor] = deque()  # indices of batches under way, oldest first
        self.batches: Generator[Tensor, None, None] | None = None

    def take(self, step: int) -> tuple[Tensor, Tensor]:
        """Return our share of a step's pixels, uint8 on the device, and all its indices."""
        if step != self.next_step:
            self.close()
            self.batches = self.files.read_batches(self.requests_from(step))
        self.next_step = step + 1
        assert self.batches is not None
        pixels = next(self.batches).to(self.files.device, non_blocking=True)
        return pixels, self.requested.popleft()

    def close(self) -> None:
        """Stop the workers; left to the garbage collector, they would outlive their run."""
        if self.batches is not None:
            self.batches.close()
        self.requested.clear()
        self.next_step = -1

    def requests_from(self, first: int) -> Iterator[Tensor]:
        """Yield our share of the indices of each step, and remember all of them for `take`."""
        for step in count(first):
            indices = self.indices_at(step)
            self.requested.append(indices)
            yield indices[self.share]
