"""CIFAR-10 and CIFAR-100 from their official Python layouts: the folder, or its .tar.gz."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from toosure.data.archives import blocks, members, named
from toosure.data.catalogue import locate
from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Images, Standardise, make_dataset
from toosure.data.pickles import read_pickle

LARGEST = 1 << 28  # bytes; the official archives hold less


@dataclass(frozen=True)
class Layout:
    """Say what a version of CIFAR is called, and its files."""

    word: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    names: str
    classes: int

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.meta)


CIFAR10 = Layout(
    "cifar10",
    "cifar-10-batches-py",
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test_batch",
    "batches.meta",
    "labels",
    "label_names",
    10,
)
CIFAR100 = Layout(
    "cifar100",
    "cifar-100-python",
    ("train",),
    "test",
    "meta",
    "fine_labels",
    "fine_label_names",
    100,
)


def load_cifar10(root: str | Path, download: bool = False) -> Images:
    """Read all of CIFAR-10 as uint8 tensors (N, 3, 32, 32), in the official order.

    `root` holds `cifar-10-batches-py/` or `cifar-10-python.tar.gz`; nothing is downloaded unless
    asked. Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    return load(CIFAR10, Path(root), download)


def load_cifar100(root: str | Path, download: bool = False) -> Images:
    """Read all of CIFAR-100 (its 100 fine labels) as uint8 tensors, in the official order.

    `root` holds `cifar-100-python/` or `cifar-100-python.tar.gz`; nothing is downloaded unless
    asked. Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    return load(CIFAR100, Path(root), download)


def load(layout: Layout, root: Path, download: bool) -> Images:
    files = find(layout, root, download)
    contents = {name: read_pickle(content, where) for name, (where, content) in files.items()}
    parts = [batch(layout, contents[name], files[name][0]) for name in layout.train]
    test_x, test_y = batch(layout, contents[layout.test], files[layout.test][0])
    return Images(
        train_x=torch.cat([x for x, _ in parts]),
        train_y=torch.cat([y for _, y in parts]),
        test_x=test_x,
        test_y=test_y,
        names=names_of(layout, contents[layout.meta], files[layout.meta][0]),
    )


def find(layout: Layout, root: Path, download: bool) -> Mapping[str, tuple[str, bytes]]:
    """Return each file's full name and bytes from the folder, the archive, or a fresh download."""
    (place,) = locate(layout.word, root, download)
    return read_folder(layout, place) if place.is_dir() else read_archive(layout, place)


def read_folder(layout: Layout, folder: Path) -> dict[str, tuple[str, bytes]]:
    if missing := [name for name in layout.files if not (folder / name).is_file()]:
        raise ValueError(f"{folder} lacks {', '.join(missing)}: unpack the archive again")
    return {name: (str(folder / name), (folder / name).read_bytes()) for name in layout.files}


def read_archive(layout: Layout, archive: Path) -> dict[str, tuple[str, bytes]]:
    """Read the expected members in memory; others are passed over, and a link is an error."""
    wanted = {PurePosixPath(layout.folder, name): name for name in layout.files}
    found = {}
    with named(archive):
        for member in members(archive, LARGEST):
            if name := wanted.get(PurePosixPath(member.name)):  # some archives say ./folder/name
                found[name] = (f"{archive}:{member.name}", b"".join(blocks(member)))
    if missing := [name for name in layout.files if name not in found]:
        raise ValueError(f"{archive} lacks {', '.join(missing)}: move it away and fetch it again")
    return found


def batch(layout: Layout, content: dict, where: str) -> tuple[Tensor, Tensor]:
    """Check and convert one pickled batch."""
    data, labels = content.get("data"), content.get(layout.labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise ValueError(f"{where} holds no images: 'data' must be a uint8 array (N, 3072)")
    if isinstance(labels, list) and all(type(label) is int for label in labels):
        labels = np.asarray(labels)  # no lists in lists, which may hold one another many times
    if not (
        isinstance(labels, np.ndarray)
        and labels.dtype.kind in "iu"
        and labels.shape == data.shape[:1]
    ):
        raise ValueError(f"{where}: {layout.labels!r} must hold one integer for each image")
    if labels.size and not 0 <= labels.min() <= labels.max() < layout.classes:
        raise ValueError(f"{where}: {layout.labels!r} must lie in [0, {layout.classes})")
    images = torch.tensor(data).view(-1, 3, 32, 32)
    return images, torch.tensor(labels, dtype=torch.int64)


def names_of(layout: Layout, content: dict, where: str) -> tuple[str, ...]:
    names = content.get(layout.names)
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is None or not texts or len(names) != layout.classes:
        raise ValueError(f"{where}: {layout.names!r} must list {layout.classes} names")
    return tuple(names)


def cifar10(
    root: Path = Path("data"),
    train: int | None = None,
    val: int = 5000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
    download: bool = False,
) -> Dataset:
    """Load CIFAR-10: 45,000 training, 5,000 validation and 10,000 test images unless told.

    `augment` crops (padding 4) and flips the training batches; see `make_dataset` for the rest.
    Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    images = load_cifar10(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed, shift)


def cifar100(
    root: Path = Path("data"),
    train: int | None = None,
    val: int = 5000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
    download: bool = False,
) -> Dataset:
    """Load CIFAR-100: 45,000 training, 5,000 validation and 10,000 test images unless told.

    `augment` crops (padding 4) and flips the training batches; see `make_dataset` for the rest.
    Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    images = load_cifar100(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed, shift)
