"""CIFAR-10 and CIFAR-100 from their official Python layouts: the folder, or its .tar.gz."""

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.data.dataset import Dataset, Images, Standardise, make_dataset
from toosure.data.download import fetch
from toosure.data.pickles import read_pickle

LARGEST = 1 << 28  # no official member is larger; a bigger one is not what it says


@dataclass(frozen=True)
class Layout:
    """Say where a version of CIFAR lies and what its files are called."""

    folder: str
    archive: str
    sha256: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    names: str
    classes: int

    @property
    def url(self) -> str:
        return f"https://www.cs.toronto.edu/~kriz/{self.archive}"

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.meta)


CIFAR10 = Layout(
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test_batch",
    "batches.meta",
    "labels",
    "label_names",
    10,
)
CIFAR100 = Layout(
    "cifar-100-python",
    "cifar-100-python.tar.gz",
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
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
    if (root / layout.folder).is_dir():
        return read_folder(layout, root / layout.folder)
    archive = root / layout.archive
    if not archive.is_file() and download:
        fetch(layout.url, archive, layout.sha256)
    if archive.is_file():
        return read_archive(layout, archive)
    raise ValueError(
        f"neither {layout.folder}/ nor {layout.archive} is in {root}: name another data root, "
        f"or ask for the download (download=True) from {layout.url}"
    )


def read_folder(layout: Layout, folder: Path) -> dict[str, tuple[str, bytes]]:
    if missing := [name for name in layout.files if not (folder / name).is_file()]:
        raise ValueError(f"{folder} lacks {', '.join(missing)}: unpack {layout.archive} again")
    return {name: (str(folder / name), (folder / name).read_bytes()) for name in layout.files}


def read_archive(layout: Layout, archive: Path) -> dict[str, tuple[str, bytes]]:
    """Read the expected members in memory; other members, links among them, are never opened."""
    wanted = {f"{layout.folder}/{name}": name for name in layout.files}
    found = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.size > LARGEST:
                    raise ValueError(f"{archive}: {member.name} claims {member.size:,} bytes")
                if member.isreg() and member.name in wanted:
                    stream = tar.extractfile(member)
                    assert stream is not None  # a regular member always has one
                    found[wanted[member.name]] = (f"{archive}:{member.name}", stream.read())
                if len(found) == len(wanted):
                    break
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{archive} is damaged or cut short: {error}; fetch it again") from error
    if missing := [name for name in layout.files if name not in found]:
        raise ValueError(f"{archive} lacks {', '.join(missing)}: fetch it again from {layout.url}")
    return found


def batch(layout: Layout, content: dict, where: str) -> tuple[Tensor, Tensor]:
    """Check and convert one pickled batch."""
    data, labels = content.get("data"), content.get(layout.labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise ValueError(f"{where} holds no images: 'data' must be a uint8 array (N, 3072)")
    try:
        labels = np.asarray(labels)
    except ValueError:
        labels = np.empty(0)
    if labels.dtype.kind not in "iu" or labels.shape != (len(data),):
        raise ValueError(f"{where}: {layout.labels!r} must hold one integer for each image")
    if labels.size and not 0 <= labels.min() <= labels.max() < layout.classes:
        raise ValueError(f"{where}: {layout.labels!r} must lie in [0, {layout.classes})")
    images = torch.tensor(data).view(-1, 3, 32, 32)
    return images, torch.tensor(labels, dtype=torch.int64)


def names_of(layout: Layout, content: dict, where: str) -> tuple[str, ...]:
    names = content.get(layout.names)
    if not isinstance(names, list) or len(names) != layout.classes:
        raise ValueError(f"{where}: {layout.names!r} must list {layout.classes} names")
    return tuple(str(name) for name in names)


def cifar10(
    root: Path = Path("data"),
    train: int | None = None,
    val: int = 5000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    download: bool = False,
) -> Dataset:
    """Load CIFAR-10: 45,000 training, 5,000 validation and 10,000 test images unless told.

    `augment` crops (padding 4) and flips the training batches; see `make_dataset` for the rest.
    Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    images = load_cifar10(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed)


def cifar100(
    root: Path = Path("data"),
    train: int | None = None,
    val: int = 5000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    download: bool = False,
) -> Dataset:
    """Load CIFAR-100: 45,000 training, 5,000 validation and 10,000 test images unless told.

    `augment` crops (padding 4) and flips the training batches; see `make_dataset` for the rest.
    Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    images = load_cifar100(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed)
