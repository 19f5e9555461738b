"""CIFAR-10-C and CIFAR-100-C as published: .npy files of 5 x 10,000 corrupted test images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.data.cifar import cifar10, cifar100
from toosure.data.corruptions import Severity, check_severity
from toosure.data.dataset import Dataset, Split
from toosure.data.locate import locate
from toosure.data.standardise import Standardise, standardised


def load_cifar10_c(
    root: str | Path, corruption: str, severity: int = 3, download: bool = False
) -> tuple[Tensor, Tensor]:
    """Read CIFAR-10-C of one corruption and severity: uint8 images (N, 3, 32, 32) and labels.

    `root` holds `CIFAR-10-C/`. Reference: Hendrycks and Dietterich (2019), Benchmarking neural
    network robustness to common corruptions and perturbations, arXiv 1903.12261.
    """
    (folder,) = locate("cifar10_c", Path(root), download)
    return read_severity(folder, corruption, severity, classes=10)


def load_cifar100_c(
    root: str | Path, corruption: str, severity: int = 3, download: bool = False
) -> tuple[Tensor, Tensor]:
    """Read CIFAR-100-C of one corruption and severity: uint8 images and fine labels.

    `root` holds `CIFAR-100-C/`. Reference: Hendrycks and Dietterich (2019), Benchmarking neural
    network robustness to common corruptions and perturbations, arXiv 1903.12261.
    """
    (folder,) = locate("cifar100_c", Path(root), download)
    return read_severity(folder, corruption, severity, classes=100)


def read_severity(
    folder: Path, corruption: str, severity: int, classes: int
) -> tuple[Tensor, Tensor]:
    """Read one severity: the file holds five blocks of equal length, mildest first."""
    check_severity(severity)
    images = folder / f"{corruption}.npy"
    labels = folder / "labels.npy"
    if not images.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.npy") if p != labels))
        raise ValueError(f"{folder} holds no {images.name}; it has {known or 'no .npy files'}")

    x = map_array(images)
    y = map_array(labels)
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1:] != (32, 32, 3) or len(x) % 5:
        raise ValueError(f"{images} must hold uint8 (5 N, 32, 32, 3); got {x.dtype} {x.shape}")
    if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
        raise ValueError(f"{labels} must hold {len(x)} integers; got {y.dtype} {y.shape}")

    count = len(x) // 5
    block = slice(int(severity - 1) * count, int(severity) * count)
    x = np.array(x[block])
    y = np.array(y[block], np.int64)
    if count and not 0 <= y.min() <= y.max() < classes:
        raise ValueError(f"{labels} must lie in [0, {classes}); got {y.min()} to {y.max()}")
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y)


def map_array(path: Path) -> np.ndarray:
    """Map a .npy file of numbers: only what is used is read, and pickled objects are refused."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header can raise nearly anything
        raise ValueError(
            f"{path} cannot be read, damaged or no plain array: {error}; "
            f"move {path.parent} away and fetch it again"
        ) from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} cannot be read: it is an archive, not one array")
    return array


def add_shift(data: Dataset, images: Tensor, labels: Tensor) -> Dataset:
    """Standardise published corrupted images like the test set, and add them as its shift."""
    indices = data.test.indices
    in_range = len(indices) and int(indices.max()) < len(labels)
    if not in_range or not torch.equal(labels[indices], data.test.y):
        raise ValueError("the corrupted images are not those of the test set: their labels differ")
    x = standardised(images[indices], data.mean, data.std)
    y = labels[indices]
    return replace(data, shift=Split(x, y, y, indices))


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
    return add_shift(data, *load_cifar10_c(root, corruption, severity, download))


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
    return add_shift(data, *load_cifar100_c(root, corruption, severity, download))
