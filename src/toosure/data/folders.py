"""From lists of image files to a data set: in memory where it fits, else streamed from disk."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.data.corruptions import Shift, check_shift
from toosure.data.dataset import (
    Dataset,
    Images,
    Split,
    Standardise,
    draw,
    draw_training,
    flip_labels,
    make_dataset,
    scale,
)
from toosure.data.files import Files
from toosure.data.seeds import mixed

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
FEW = 500  # images that are not worth starting processes for


@dataclass(frozen=True)
class Listing:
    """Hold the files of one part of a data set and their labels."""

    names: np.ndarray  # (N,) paths as bytes
    labels: Tensor  # (N,) int64

    def __len__(self) -> int:
        return len(self.names)

    def at(self, places: Tensor) -> "Listing":
        return Listing(self.names[places.numpy()], self.labels[places])


def listing(files: list[tuple[str | Path, int]]) -> Listing:
    names = np.array([os.fsencode(file) for file, _ in files], dtype=np.bytes_)
    return Listing(names, torch.tensor([label for _, label in files], dtype=torch.int64))


def class_names(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(names) < 2:
        raise ValueError(
            f"{folder} must hold a folder for each of two or more classes; got {names}"
        )
    return tuple(names)


def files_of(folder: Path, names: tuple[str, ...], besides: Collection[str] = ()) -> Listing:
    """List the images below each class folder with the class's number."""
    known = {*names, *besides}
    strangers = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in known)
    if strangers := [name for name in strangers if not name.startswith(".")]:
        raise ValueError(f"{folder} has classes that train/ lacks: {', '.join(strangers[:5])}")
    found: list[tuple[str | Path, int]] = [
        (file, label)
        for label, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() in SUFFIXES and file.is_file()
    ]
    if not found:
        raise ValueError(f"{folder} holds no images ({', '.join(sorted(SUFFIXES))})")
    return listing(found)


def decoded(files: Listing, size: int, workers: int | None, resize: int | None = None) -> Tensor:
    """Read images into memory, uint8 (N, 3, size, size)."""
    few = len(files) < FEW
    none = torch.zeros(3, 1, 1)
    x = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    here = 0
    whole = Files(files.names, size, none, none, 0 if few else workers, resize=resize)
    for batch in whole.raw():
        x[here : here + len(batch)] = batch
        here += len(batch)
    return x


def folder_dataset(
    parts: dict[str, Listing],
    names: tuple[str, ...],
    size: int,
    stream: bool | None,
    watched: int,
    limit_gb: float,
    workers: int | None,
    resize: int | None = None,
    **settings: Any,
) -> Dataset:
    """Make a data set of train, test and, where published, val; `settings` as `make_dataset`'s.

    `stream=None` streams what would take more than `limit_gb`. Without a test part a fifth of the
    images, or `test` of them, is held out by seed.
    """
    if resize is not None and resize < size:
        raise ValueError(f"resize must be at least the size of {size} pixels; got {resize}")
    check_classes(parts["train"], names)
    need = check_size(sum(map(len, parts.values())), size)
    if settings["shift"] is not None:
        check_shift(settings["shift"], torch.empty(0, 3, size, size))
    stream = need > limit_gb if stream is None else stream
    if not stream and need > limit_gb:
        raise ValueError(
            f"{sum(map(len, parts.values())):,} images of {size} x {size} take {need:.1f} GB of "
            f"memory, over the limit of {limit_gb:g} GB: lower size, raise limit_gb, or stream=true"
        )
    if "test" not in parts:
        parts |= held_out(parts["train"], settings["test"], settings["seed"])
        settings["test"] = None
    if stream:
        return streamed(parts, names, size, watched, workers, resize, **settings)
    x = {
        part: (decoded(files, size, workers, resize), files.labels) for part, files in parts.items()
    }
    return make_dataset(Images(*x["train"], *x["test"], names, val=x.get("val")), **settings)


def held_out(files: Listing, test: int | None, seed: int) -> dict[str, Listing]:
    """Split by seed where no test set is published, as `hold_out` does with images."""
    count = -(-len(files) // 5) if test is None else test
    test_at, train_at = draw("labelled", len(files), [count, None], mixed(seed, 2))
    return {"train": files.at(train_at), "test": files.at(test_at)}


def check_classes(train: Listing, names: tuple[str, ...]) -> None:
    """Raise if a class has nothing to learn from: a stray folder, or one that cannot be read."""
    counts = train.labels.bincount(minlength=len(names)).tolist()
    if empty := [name for name, count in zip(names, counts, strict=True) if not count]:
        raise ValueError(
            f"{len(empty)} of {len(names)} class folders hold no image to train on, such as "
            f"{empty[0]}: fill or remove them ({', '.join(sorted(SUFFIXES))} are read)"
        )


def check_size(count: int, size: int) -> float:
    """Return the gigabytes that images take: one byte a value raw, four standardised."""
    if size < 1:
        raise ValueError(f"size must be the images' side in pixels, at least 1; got {size}")
    return count * 3 * size * size * 5 / 1e9


def streamed(
    parts: dict[str, Listing],
    names: tuple[str, ...],
    size: int,
    watched: int,
    workers: int | None,
    resize: int | None,
    train: int | None,
    val: int,
    test: int | None,
    noise: float,
    standardise: Standardise,
    augment: bool,
    seed: int,
    shift: Shift | None,
) -> Dataset:
    """Keep the training and test images on disk, and in memory `watched` of the training images.

    Those are drawn by seed; they are what is watched, and what gives mean and deviation.
    Splits and label noise are drawn as in memory.
    """
    if watched < 1:
        raise ValueError(f"watched must be how many training images to measure; got {watched}")
    val_at, train_at = draw_training(len(parts["train"]), val, train, seed)
    (test_at,) = draw("test", len(parts["test"]), [test], seed)
    learn, judge = parts["train"].at(train_at), parts["test"].at(test_at)
    noisy = flip_labels(learn.labels, len(names), noise, seed)
    some = min(watched, len(learn))
    (seen,) = draw("watched", len(learn), [some], mixed(seed, 3))
    pixels = decoded(learn.at(seen), size, workers, resize)
    mean, std = scale(pixels, 255, standardise)

    def scaled(x: Tensor) -> Tensor:
        return x.float().div_(255).sub_(mean).div_(std)

    def on_disk(files: Listing, y: Tensor, at: Tensor) -> Split:
        x: Any = Files(files.names, size, mean, std, workers, resize=resize)
        return Split(x, y, files.labels, at)

    published = parts.get("val")
    checked = parts["train"].at(val_at) if val else published
    data = Dataset(
        train=Split(scaled(pixels), noisy[seen], learn.labels[seen], train_at[seen]),
        val=None,
        test=on_disk(judge, judge.labels, test_at),
        names=names,
        mean=mean,
        std=std,
        augment=augment,
        shift=shift,
        stream=on_disk(learn, noisy, train_at),
    )
    if checked is None or not len(checked):
        return data
    at = val_at if val else torch.arange(len(checked))
    x, y = scaled(decoded(checked, size, workers, resize)), checked.labels
    return replace(data, val=Split(x, y, y, at))
