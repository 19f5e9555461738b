"""List image files with their labels from folders, one subfolder per class."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


@dataclass(frozen=True)
class LabelledFiles:
    """Hold the paths of image files, or their places in shards, and their labels."""

    names: np.ndarray  # (N,) paths as bytes, or what `member_places` returns
    labels: Tensor  # (N,) int64

    def __len__(self) -> int:
        return len(self.names)

    def select(self, indices: Tensor) -> "LabelledFiles":
        return LabelledFiles(self.names[indices.numpy()], self.labels[indices])


def labelled_files(files: Sequence[tuple[Path, int]]) -> LabelledFiles:
    """Pack pairs of a path and a label."""
    names = np.array([os.fsencode(file) for file, _ in files], dtype=np.bytes_)
    labels = torch.tensor([label for _, label in files], dtype=torch.int64)
    return LabelledFiles(names, labels)


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the subfolders, without hidden ones."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(names) < 2:
        raise ValueError(
            f"{folder} must hold a folder for each of two or more classes; got {names}"
        )
    return tuple(names)


def list_class_folders(
    folder: Path, names: tuple[str, ...], ignored: Collection[str] = ()
) -> LabelledFiles:
    """List the images below each class folder with the index of the class as label."""
    known = {*names, *ignored}
    subfolders = sorted(path.name for path in folder.iterdir() if path.is_dir())
    unknown = [name for name in subfolders if name not in known and not name.startswith(".")]
    if unknown:
        raise ValueError(f"{folder} has classes that train/ lacks: {', '.join(unknown[:5])}")

    files = [
        (file, label)
        for label, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if is_image(file)
    ]
    if not files:
        raise ValueError(f"{folder} holds no images ({', '.join(sorted(SUFFIXES))})")
    return labelled_files(files)


def is_image(file: Path) -> bool:
    """Return whether a path is a file with the suffix of an image."""
    return file.suffix.lower() in SUFFIXES and file.is_file()
