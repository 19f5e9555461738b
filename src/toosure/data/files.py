"""Images that stay on disk: worker processes decode them in the order asked for."""

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from toosure.data.corruptions import Shift, corrupt_part, together

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
LARGEST = 1 << 26  # pixels of an image; more is a bomb, or none for a classifier
MOST = 16  # processes that decode, however many cores there are
CHUNK = 256  # images decoded together where nobody says


def read_image(file: str | Path, size: int, resize: int | None = None) -> Tensor:
    """Read one image as uint8 (3, size, size), resized by its shorter side and cut in the middle.

    The shorter side becomes `resize` pixels, or `size`. A JPEG much larger than that is decoded
    at half, a quarter or an eighth of its size first, at least twice the size asked for, as Pillow
    does for thumbnails.
    """
    side = size if resize is None else resize
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ValueError("images need Pillow: pip install 'toosure[images]'") from error
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > LARGEST:
                raise ValueError(f"it claims {image.width:,} x {image.height:,} pixels")
            image.draft("RGB", (2 * side, 2 * side))
            square = ImageOps.fit(in_colour(image), (side, side), Image.Resampling.BILINEAR)
            cut = (side - size) // 2
            square = square.crop((cut, cut, cut + size, cut + size))
    except (
        OSError, SyntaxError, ValueError, Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:  # fmt: skip
        raise ValueError(f"{file} cannot be read as an image: {error}") from error
    return torch.tensor(np.asarray(square)).permute(2, 0, 1)


def in_colour(image: Any) -> Any:
    """Convert to RGB; Pillow alone would make all of 16 bits white, and warn of clear palettes."""
    if image.mode[0] in "IF":  # numbers beyond a byte
        # I;16 has 16 bits; so has plain I from PNG and PPM, but in a TIFF it has 32.
        if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
            raise ValueError("its values are neither of 8 nor of 16 bits")
        from PIL import Image

        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


class Decoder(Dataset):
    """Decode the images at some places into one uint8 batch (B, 3, size, size)."""

    def __init__(self, names: np.ndarray, size: int, resize: int | None) -> None:
        self.names, self.size, self.resize = names, size, resize

    def __getitems__(self, at: list[int]) -> Tensor | str:
        """Return the batch, or what is wrong: an error would arrive wrapped in a traceback."""
        batch = torch.empty(len(at), 3, self.size, self.size, dtype=torch.uint8)
        try:
            for place, name in zip(batch, self.names[at], strict=True):
                place.copy_(read_image(os.fsdecode(name), self.size, self.resize))
        except ValueError as error:
            return str(error)
        return batch


@dataclass(frozen=True, eq=False)
class Files:
    """Stand for the x of a split whose images are on disk: a tensor to be read in parts.

    It has a length, a shape and a device, and gives standardised parts by `split`.
    Names lie in one array of bytes, which processes share; a list of a million texts they would
    copy. `workers=None` takes a process for each core, 16 at most; 0 decodes in this one.
    """

    names: np.ndarray  # (N,) paths as bytes
    size: int
    mean: Tensor
    std: Tensor
    workers: int | None = None
    shift: Shift | None = None  # made of all images as they are read in order
    seed: int = 0  # of the shift
    resize: int | None = None  # the shorter side before the cut to `size`, where it is another

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.names), 3, self.size, self.size))

    @property
    def device(self) -> torch.device:
        return self.mean.device

    def __len__(self) -> int:
        return len(self.names)

    def to(self, device: torch.device | str) -> "Files":
        """Give parts on a device from now on; nothing is copied."""
        return replace(self, mean=self.mean.to(device), std=self.std.to(device))

    def double(self) -> "Files":
        """Give parts in double precision from now on."""
        return replace(self, mean=self.mean.double(), std=self.std.double())

    def split(self, chunk: int = CHUNK) -> Iterator[Tensor]:
        """Give all images in order, standardised, in parts of at most `chunk`."""
        chunk = min(chunk, CHUNK)
        everything = torch.arange(len(self))
        # A shift is drawn for the same images together as in memory, whatever the parts.
        draws = together(self.size, self.size)
        read = self.raw(everything.split(chunk if self.shift is None else draws))
        for number, pixels in enumerate(read):
            part = pixels.to(self.device, non_blocking=True)
            if self.shift is not None:
                part = corrupt_part(part, *self.shift, self.seed, number)
            for some in part.split(chunk):
                yield some.to(self.mean.dtype).div_(255).sub_(self.mean).div_(self.std)

    def raw(self, places: Iterable[Tensor] | None = None) -> Generator[Tensor, None, None]:
        """Give uint8 batches; without places, all images in order."""
        if places is None:
            places = torch.arange(len(self)).split(CHUNK)
        workers = cores() if self.workers is None else self.workers
        loader: Any = DataLoader(
            Decoder(self.names, self.size, self.resize),
            batch_sampler=Lists(places),
            collate_fn=as_it_is,
            num_workers=workers,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=begin_worker if workers else None,
            generator=torch.Generator(),  # else it would draw a seed from torch's own
        )
        for batch in loader:
            if isinstance(batch, str):
                raise ValueError(batch)
            yield batch


class Lists:
    """Turn tensors of places into the lists a loader takes, one by one as it asks."""

    def __init__(self, places: Iterable[Tensor]) -> None:
        self.places = places

    def __iter__(self) -> Iterator[list[int]]:
        return (at.tolist() for at in self.places)


def as_it_is(batch: Any) -> Any:
    return batch


def begin_worker(worker: int) -> None:
    """Let the main process alone decide what Ctrl-C means, and what becomes of its tensors.

    A worker that collects a CUDA tensor it inherited ends with an error of the device.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(MOST, len(affinity(0)) if affinity else os.cpu_count() or 1)


class Reader:
    """Read the batch of a step from a split on disk, the next ones being decoded meanwhile.

    `places(step)` says which images a step sees, on the CPU. Steps are taken one after another;
    any other step starts the workers anew there, so that a resumed run sees the same batches.
    `share` is the part of each batch to decode here.
    """

    def __init__(
        self, files: Files, places: Callable[[int], Tensor], share: slice = slice(None)
    ) -> None:
        self.files, self.places, self.share = files, places, share
        self.next = -1
        self.asked: deque[Tensor] = deque()
        self.parts: Generator[Tensor, None, None] | None = None

    def take(self, step: int) -> tuple[Tensor, Tensor]:
        """Return our share of a step's pixels, uint8 on the device, and all its places."""
        if step != self.next:
            self.close()
            self.parts = self.files.raw(self.noted(step))
        self.next = step + 1
        assert self.parts is not None
        pixels = next(self.parts).to(self.files.device, non_blocking=True)
        return pixels, self.asked.popleft()

    def close(self) -> None:
        """End the workers; left to the garbage collector, they would outlive their run."""
        if self.parts is not None:
            self.parts.close()
        self.asked.clear()
        self.next = -1

    def noted(self, step: int) -> Iterator[Tensor]:
        for each in count(step):
            at = self.places(each)
            self.asked.append(at)
            yield at[self.share]
