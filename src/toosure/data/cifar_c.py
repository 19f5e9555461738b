"""CIFAR-10-C and CIFAR-100-C as published: .npy files of 5 x 10,000 corrupted test images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.data.catalogue import locate
from toosure.data.cifar import cifar10, cifar100
from toosure.data.corruptions.table import Severity
from toosure.data.dataset import Dataset, Split, Standardise


def load_cifar10_c(
    root: str | Path, corruption: str, severity: int = 3, download: bool = False
) -> tuple[Tensor, Tensor]:
    """Read CIFAR-10-C of one corruption and severity: uint8 images (N, 3, 32, 32) and labels.

    `root` holds `CIFAR-10-C/`. Reference: Hendrycks and Dietterich (2019), Benchmarking neural
    network robustness to common corruptions and perturbations, arXiv 1903.12261.
    """
    (folder,) = locate("cifar10_c", Path(root), download)
    return read(folder, corruption, severity, classes=10)


def load_cifar100_c(
    root: str | Path, corruption: str, severity: int = 3, download: bool = False
) -> tuple[Tensor, Tensor]:
    """Read CIFAR-100-C of one corruption and severity: uint8 images and fine labels.

    `root` holds `CIFAR-100-C/`. Reference: Hendrycks and Dietterich (2019), Benchmarking neural
    network robustness to common corruptions and perturbations, arXiv 1903.12261.
    """
    (folder,) = locate("cifar100_c", Path(root), download)
    return read(folder, corruption, severity, classes=100)


def read(folder: Path, corruption: str, severity: int, classes: int) -> tuple[Tensor, Tensor]:
    """Read one of the five blocks that follow each other in the file, mildest first."""
    if severity not in range(1, 6):
        raise ValueError(f"severity must be a whole number from 1 to 5; got {severity!r}")
    images, labels = folder / f"{corruption}.npy", folder / "labels.npy"
    if not images.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.npy") if p != labels))
        raise ValueError(f"{folder} holds no {images.name}; it has {known or 'no .npy files'}")
    x, y = array_of(images), array_of(labels)
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1:] != (32, 32, 3) or len(x) % 5:
        raise ValueError(f"{images} must hold uint8 (5 N, 32, 32, 3); got {x.dtype} {x.shape}")
    if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
        raise ValueError(f"{labels} must hold {len(x)} integers; got {y.dtype} {y.shape}")
    count = len(x) // 5
    block = slice(int(severity - 1) * count, int(severity) * count)
    x, y = np.array(x[block]), np.array(y[block], np.int64)
    if count and not 0 <= y.min() <= y.max() < classes:
        raise ValueError(f"{labels} must lie in [0, {classes}); got {y.min()} to {y.max()}")
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y)


def array_of(path: Path) -> np.ndarray:
    """Map a .npy file of numbers; pickled objects are refused, and only what is used is read."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header can raise nearly anything
        raise ValueError(
            f"{path} cannot be read, damaged or no plain array: {error}; "
            f"move {path.parent} away and fetch it again"
        ) from error
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{path} cannot be read: it is an archive, not one array")
    return found


def shifted(data: Dataset, images: tuple[Tensor, Tensor]) -> Dataset:
    """Standardise published corrupted images like the test set, and add them as its shift."""
    at = data.test.indices
    known = len(at) and int(at.max()) < len(images[1])
    if not known or not torch.equal(images[1][at], data.test.y):
        raise ValueError("the corrupted images are not those of the test set: their labels differ")
    x, y = (part[at] for part in images)
    pixels = x.float().div_(255).sub_(data.mean).div_(data.std)
    return replace(data, shift=Split(pixels, y, y, at))


def cifar10_c(
    corruption: str,
    severity: Severity = 3,
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
    """Load CIFAR-10 with the published images of one corruption as its shifted test set.

    Reference: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations, arXiv 1903.12261.
    """
    data = cifar10(root, train, val, test, noise, standardise, augment, seed, download=download)
    return shifted(data, load_cifar10_c(root, corruption, severity, download))


def cifar100_c(
    corruption: str,
    severity: Severity = 3,
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
    """Load CIFAR-100 with the published images of one corruption as its shifted test set.

    Reference: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations, arXiv 1903.12261.
    """
    data = cifar100(root, train, val, test, noise, standardise, augment, seed, download=download)
    return shifted(data, load_cifar100_c(root, corruption, severity, download))
