"""MNIST and Fashion-MNIST from their official idx files, plain or as .gz."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.data.archives import GZIP_MAGIC
from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Images, make_dataset
from toosure.data.locate import locate
from toosure.data.standardise import Standardise

MAX_BYTES = 1 << 28  # the largest official file holds 47 MB
IDX_OF_BYTES = b"\0\0\x08"  # the first three bytes; the fourth is the number of dimensions
CLOTHING = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)


def load_mnist(root: str | Path, download: bool = False) -> Images:
    """Read all of MNIST as uint8 tensors (N, 1, 28, 28), in the official order.

    `root` holds `mnist/train-images-idx3-ubyte.gz` and the other three, or `MNIST/raw/`, as .gz or
    plain. Reference: LeCun et al. (1998), Gradient-based learning applied to document recognition.
    """
    return load("mnist", root, download, tuple("0123456789"))


def load_fashion_mnist(root: str | Path, download: bool = False) -> Images:
    """Read all of Fashion-MNIST as uint8 tensors (N, 1, 28, 28), in the official order.

    `root` holds `fashion_mnist/train-images-idx3-ubyte.gz` and the other three, or
    `FashionMNIST/raw/`. Reference: Xiao et al. (2017), Fashion-MNIST, arXiv 1708.07747.
    """
    return load("fashion_mnist", root, download, CLOTHING)


def load(name: str, root: str | Path, download: bool, names: tuple[str, ...]) -> Images:
    train_images, train_labels, test_images, test_labels = locate(name, Path(root), download)
    train = read_pair(train_images, train_labels)
    test = read_pair(test_images, test_labels)
    return Images(*train, *test, names, mirror=name != "mnist")


def read_pair(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Read images and their labels, and check that they belong together."""
    x = read_idx(images)
    y = read_idx(labels)
    if x.ndim != 3 or x.shape[1:] != (28, 28):
        raise ValueError(f"{images} must hold images of 28 x 28; its shape is {tuple(x.shape)}")
    if y.shape != x.shape[:1]:
        raise ValueError(f"{labels} must hold {len(x)} labels; its shape is {tuple(y.shape)}")
    if len(y) and int(y.max()) > 9:
        raise ValueError(f"{labels} must hold labels from 0 to 9; it holds {int(y.max())}")
    return x[:, None], y.long()


def read_idx(path: Path) -> Tensor:
    """Read an idx file of bytes: 0, 0, type 8, dimensions, each size in 4 bytes, then the values.

    The file must be exactly as long as its header says.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "labels")
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    >>> read_idx(file)
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    try:
        with open(path, "rb") as raw:
            compressed = raw.read(2) == GZIP_MAGIC

        with gzip.open(path) if compressed else open(path, "rb") as file:
            magic = file.read(4)
            if len(magic) != 4 or magic[:3] != IDX_OF_BYTES or not 1 <= magic[3] <= 4:
                raise ValueError("its first bytes are not those of an idx file of bytes")
            dimensions = magic[3]

            sizes = file.read(4 * dimensions)
            if len(sizes) != 4 * dimensions:
                raise ValueError("it ends within its header")
            shape = np.frombuffer(sizes, ">u4").tolist()
            if not 0 < prod(shape) <= MAX_BYTES:
                raise ValueError(f"its header claims the shape {shape}")

            values = file.read(prod(shape) + 1)  # one more, to notice a file that is too long
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read, damaged or not this data set: {error}; "
            "move it away and fetch it again"
        ) from error

    if len(values) != prod(shape):
        raise ValueError(f"{path} is cut short or too long for the shape {shape} it claims")
    return torch.frombuffer(bytearray(values), dtype=torch.uint8).view(shape)


def mnist(
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
    """Load MNIST: by default 55,000 training, 5,000 validation and 10,000 test images.

    `augment` crops (padding 4) and does not flip; see `make_dataset` for the rest.
    Reference: LeCun et al. (1998), Gradient-based learning applied to document recognition.
    """
    images = load_mnist(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed, shift)


def fashion_mnist(
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
    """Load Fashion-MNIST: by default 55,000 training, 5,000 validation and 10,000 test images.

    `augment` crops (padding 4) and flips; see `make_dataset` for the rest.
    Reference: Xiao et al. (2017), Fashion-MNIST, arXiv 1708.07747.
    """
    images = load_fashion_mnist(root, download)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed, shift)
