"""Out-of-distribution images: of another data set, of a file, or noise."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toosure.data import Dataset, corrupt
from toosure.data.seeds import derive_seed
from toosure.data.standardise import raw_pixels
from toosure.shifts.plan import ShiftPlan, data_set_of, is_file_name, named_place
from toosure.words import TABLES, parse

NAMES = ("images", "x", "X", "data", "test_x", "pixels")  # usual names of an array of images
NOISE_IMAGES = 10_000
NOISE_STREAM = 3  # of random numbers, beside the seed of the plan
GREY = (0.299, 0.587, 0.114)  # shares of red, green and blue


@dataclass(frozen=True)
class OODSet:
    """One set of images in the shape of a network's inputs: uint8 (N, C, H, W)."""

    name: str
    pixels: Tensor
    note: str = ""  # what was done to them
    source: str = ""  # the word or file (`source_of`)


def load_ood_set(
    word: str,
    plan: ShiftPlan,
    inputs: tuple[int, ...],
    root: Path = Path("data"),
    download: bool = False,
) -> OODSet:
    """Load the images that one word of `--ood` names, at the size of the network's `inputs`.

    With -c after the name of a data set, each image is under one of the plan's corruptions, in
    turn. An AUROC against all of them is then the mean over corruptions and severities.
    """
    name, place = named_place(word)
    images = noise(plan, inputs) if place == "noise" else read_named(word, root, download)

    drawn = images[drawn_indices(len(images), plan.images, plan.seed)]
    pixels, notes = fitted(drawn, inputs)
    if len(drawn) < len(images):
        notes.append(f"{len(drawn):,} of {len(images):,} images")
    if data_set_of(word).endswith("-c"):
        pixels = corrupted_in_turn(pixels, plan)
        notes.append("each image under one of the corruptions, in turn")
    return OODSet(name, pixels, "; ".join(notes), source_of(word))


def read_named(word: str, root: Path = Path("data"), download: bool = False) -> Tensor:
    """Return the images of a file or data set that a word of `--ood` names, as uint8."""
    _, place = named_place(word)
    return read_images(Path(place)) if is_file_name(place) else read_data_set(place, root, download)


def drawn_indices(available: int, images: int | None, seed: int) -> Tensor:
    """Return the indices of the images to judge, drawn by seed, in rising order."""
    if images is None or images >= available:
        return torch.arange(available)
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))
    return order[:images].sort().values


# -- where they come from -------------------------------------------------------------------------


def source_of(word: str) -> str:
    """Return a text that identifies the images of a word: the word, or the hash of its file.

    >>> source_of("cifar100:test=500"), source_of("svhn=not_there.npz")
    ('cifar100:test=500', 'not_there.npz')
    """
    _, place = named_place(word)
    path = Path(place)
    if not is_file_name(place):
        return place
    if not path.is_file():
        return str(path)
    return checksum(path, path.stat().st_mtime_ns)


@lru_cache
def checksum(path: Path, changed: int) -> str:
    """Return a hash of a file as it was when it was `changed`, read once for many runs."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read_data_set(word: str, root: Path, download: bool) -> Tensor:
    """Return the test images of a data set as uint8."""
    name, _, settings = word.partition(":")
    base = name.removesuffix("-c")
    if base not in TABLES["data"] and ":" not in word:
        known = ", ".join(TABLES["data"])
        raise ValueError(
            f"--ood {word}: no data set or file is called so. Known: {known}, noise, or a file of "
            "images as NAME=FILE.npz"
        )

    try:
        text = f"{base}:{settings}" if settings else base
        # Only the test images count, so that as few others as possible are converted.
        few: dict[str, Any] = {"train": 1, "val": 0, "standardise": "none"}
        data: Dataset = parse("data", text).build(root=root, download=download, **few)
    except ValueError as error:
        raise ValueError(f"--ood {word}: {error}") from error

    if not isinstance(data.test.x, Tensor):  # on disk
        return torch.cat(list(data.test.x.read_batches()))
    return raw_pixels(data.test.x, data.mean, data.std)


def noise(plan: ShiftPlan, inputs: tuple[int, ...]) -> Tensor:
    """Draw images of uniform noise."""
    count = min(plan.images or NOISE_IMAGES, NOISE_IMAGES)
    generator = torch.Generator().manual_seed(derive_seed(plan.seed, NOISE_STREAM))
    return torch.randint(0, 256, (count, *inputs), generator=generator, dtype=torch.uint8)


def read_images(path: Path) -> Tensor:
    """Read images (N, H, W, 3), (N, 3, H, W) or (N, H, W) of a file as uint8 (N, C, H, W)."""
    try:
        content = load_file(path)
    except FileNotFoundError:
        raise ValueError(f"--ood {path}: there is no such file") from None
    except Exception as error:  # a damaged or foreign file can raise nearly anything
        raise ValueError(
            f"--ood {path} cannot be read as images: cut short, damaged or of another kind than "
            f"{path.suffix}"
        ) from error
    return as_images(torch.as_tensor(array_in(content, path)), path)


def load_file(path: Path) -> object:
    """Return the array of a file, or its arrays by name; nothing in it can execute."""
    if path.suffix == ".pt":
        return torch.load(path, weights_only=True)
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def array_in(content: object, path: Path) -> Any:
    """Return the array of images: the only one of a file, or the one of a usual name."""
    if not isinstance(content, Mapping):
        return content
    names = list(content)
    usual = [name for name in NAMES if name in names]
    if not usual and len(names) > 1:
        raise ValueError(f"--ood {path} holds {', '.join(names)}: call the images 'images'")
    if not names:
        raise ValueError(f"--ood {path} holds no array")
    return content[usual[0] if usual else names[0]]


def as_images(values: Tensor, path: Path) -> Tensor:
    """Convert an array to the shape (N, C, H, W) and the type uint8."""
    one_image = values.ndim == 3 and values.shape[2] == 3
    if values.ndim == 3 and not one_image:
        values = values[:, None]
    if values.ndim == 4 and values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
        values = values.permute(0, 3, 1, 2)
    if values.ndim != 4 or values.shape[1] not in (1, 3) or not len(values):
        raise ValueError(
            f"--ood {path}: images must be (N, H, W, 3), (N, 3, H, W) or (N, H, W); got "
            f"{tuple(values.shape)}"
        )

    if values.dtype == torch.uint8:
        return values.contiguous()
    if values.is_floating_point() and bool(((values >= 0) & (values <= 1)).all()):
        return (values * 255).round().byte().contiguous()
    low, high = (float(each) for each in values.double().aminmax())
    raise ValueError(
        f"--ood {path}: images must be uint8, or floats in [0, 1]; got "
        f"{str(values.dtype).removeprefix('torch.')} from {low:g} to {high:g}"
    )


# -- into the form of the network's inputs --------------------------------------------------------


def fitted(pixels: Tensor, inputs: tuple[int, ...]) -> tuple[Tensor, list[str]]:
    """Return images with the channels and the size of the inputs, and what was done to them."""
    channels, height, width = inputs
    notes = []
    if pixels.shape[1] != channels:
        notes.append("grey repeated as colours" if channels == 3 else "colours turned grey")
        if channels == 3:
            pixels = pixels.expand(-1, 3, -1, -1)
        else:
            weights = torch.tensor(GREY).view(3, 1, 1)
            pixels = (pixels * weights).sum(1, keepdim=True).round().byte()

    if pixels.shape[2:] != (height, width):
        notes.append(f"resized from {pixels.shape[2]} x {pixels.shape[3]}")
        pixels = F.interpolate(pixels.float(), (height, width), mode="bilinear", antialias=True)
        pixels = pixels.round().clamp(0, 255).byte()
    return pixels.contiguous(), notes


def corrupted_in_turn(pixels: Tensor, plan: ShiftPlan) -> Tensor:
    """Corrupt image i by the i-th pair of corruption and severity, counted in a circle."""
    pairs = [(name, severity) for name in plan.corruptions for severity in plan.severities]
    corrupted = torch.empty_like(pixels)
    for place, (name, severity) in enumerate(pairs[: len(pixels)]):
        own = slice(place, None, len(pairs))
        corrupted[own] = corrupt(pixels[own], name, severity, plan.seed)
    return corrupted
