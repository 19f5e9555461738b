"""CIFAR-10 and CIFAR-100 from their official Python layouts: the folder, or its .tar.gz."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from toosure.data.archives import errors_name, members, read_blocks
from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Images, make_dataset
from toosure.data.locate import locate
from toosure.data.pickles import read_pickle
from toosure.data.standardise import Standardise

MAX_BYTES = 1 << 28  # of an unpacked archive; the official ones hold less


@dataclass(frozen=True)
class Layout:
    """The files of one version of CIFAR, and the keys of the pickles in them."""

    source: str  # its name in the catalogue
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str  # the key of the labels
    names: str  # the key of the class names
    classes: int

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.meta)


@dataclass(frozen=True)
class File:
    """A file in memory, and the path that errors name."""

    path: str
    content: bytes


CIFAR10 = Layout(
    source="cifar10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    names="label_names",
    classes=10,
)
CIFAR100 = Layout(
    source="cifar100",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
    classes=100,
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
    """Read a data set in its layout, from a folder or the official archive."""
    (place,) = locate(layout.source, root, download)
    files = read_folder(layout, place) if place.is_dir() else read_archive(layout, place)
    contents = {name: read_pickle(file.content, file.path) for name, file in files.items()}

    batches = [convert_batch(layout, contents[name], files[name].path) for name in layout.train]
    test_x, test_y = convert_batch(layout, contents[layout.test], files[layout.test].path)
    return Images(
        train_x=torch.cat([x for x, _ in batches]),
        train_y=torch.cat([y for _, y in batches]),
        test_x=test_x,
        test_y=test_y,
        names=class_names(layout, contents[layout.meta], files[layout.meta].path),
    )


def read_folder(layout: Layout, folder: Path) -> dict[str, File]:
    """Read the files of the layout from a folder."""
    if missing := [name for name in layout.files if not (folder / name).is_file()]:
        raise ValueError(f"{folder} lacks {', '.join(missing)}: unpack the archive again")
    return {name: File(str(folder / name), (folder / name).read_bytes()) for name in layout.files}


def read_archive(layout: Layout, archive: Path) -> dict[str, File]:
    """Read the files of the layout from an archive; others are skipped, and a link is an error."""
    name_of = {PurePosixPath(layout.folder, name): name for name in layout.files}
    files = {}
    with errors_name(archive):
        for member in members(archive, MAX_BYTES):
            # As a path, because some archives say ./folder/name.
            if name := name_of.get(PurePosixPath(member.name)):
                files[name] = File(f"{archive}:{member.name}", b"".join(read_blocks(member)))
    if missing := [name for name in layout.files if name not in files]:
        raise ValueError(f"{archive} lacks {', '.join(missing)}: move it away and fetch it again")
    return files


def convert_batch(
    layout: Layout, content: Mapping[str, object], path: str
) -> tuple[Tensor, Tensor]:
    """Check one pickled batch and convert it to images and labels."""
    data = content.get("data")
    labels = content.get(layout.labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise ValueError(f"{path} holds no images: 'data' must be a uint8 array (N, 3072)")

    # Only a flat list: numpy would expand nested lists, which may repeat each other endlessly.
    if isinstance(labels, list) and all(type(label) is int for label in labels):
        labels = np.asarray(labels)
    if not (
        isinstance(labels, np.ndarray)
        and labels.dtype.kind in "iu"
        and labels.shape == data.shape[:1]
    ):
        raise ValueError(f"{path}: {layout.labels!r} must hold one integer for each image")
    if labels.size and not 0 <= labels.min() <= labels.max() < layout.classes:
        raise ValueError(f"{path}: {layout.labels!r} must lie in [0, {layout.classes})")

    images = torch.tensor(data).view(-1, 3, 32, 32)
    return images, torch.tensor(labels, dtype=torch.int64)


def class_names(layout: Layout, content: Mapping[str, object], path: str) -> tuple[str, ...]:
    """Check and return the names of the classes."""
    names = content.get(layout.names)
    if (
        not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
        or len(names) != layout.classes
    ):
        raise ValueError(f"{path}: {layout.names!r} must list {layout.classes} names")
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
    """Load CIFAR-10: by default 45,000 training, 5,000 validation and 10,000 test images.

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
    """Load CIFAR-100: by default 45,000 training, 5,000 validation and 10,000 test images.

    `augment` crops (padding 4) and flips the training batches; see `make_dataset` for the rest.
    Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    images = load_cifar100(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed, shift)
