"""SVHN, cropped house numbers, from the official .mat files."""

import zlib
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
from torch import Tensor

from toosure.data.catalogue import SVHN_URL
from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Images, make_dataset
from toosure.data.locate import locate
from toosure.data.standardise import Standardise

MAX_BYTES = 2_000_000_000  # unpacked; the official training file holds 225 MB, extra 1.6 GB
COMPRESSED = 15  # the type of a compressed element (miCOMPRESSED) in a .mat file of version 5


def load_svhn(root: str | Path, download: bool = False, extra: bool = False) -> Images:
    """Read SVHN as uint8 tensors (N, 3, 32, 32), in the official order; the digit 0 is class 0.

    `root` holds `svhn/train_32x32.mat` and `svhn/test_32x32.mat`, or both itself. With `extra`,
    the 531,131 images of `extra_32x32.mat` beside them, which is not downloaded, join the training
    set. Reference: Netzer et al. (2011), Reading digits in natural images.
    """
    train_file, test_file = locate("svhn", Path(root), download)
    train_files = [train_file]
    if extra:
        extra_file = train_file.with_name("extra_32x32.mat")
        if not extra_file.is_file():
            raise ValueError(
                f"there is no {extra_file}: it is not downloaded for you; fetch its 1.3 GB from "
                f"{SVHN_URL}{extra_file.name}, or leave out extra"
            )
        train_files.append(extra_file)

    parts = [read_mat(file) for file in train_files]
    train_x, train_y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Images(train_x, train_y, *read_mat(test_file), tuple("0123456789"), mirror=False)


def read_mat(path: Path) -> tuple[Tensor, Tensor]:
    """Read X (32, 32, 3, N) and y (N, 1) of a .mat file; a label of 10 means 0."""
    try:
        from scipy.io import loadmat, whosmat  # slow to import, and only needed here

        check_unpacked_size(path)
        kinds = {name: kind for name, _, kind in whosmat(str(path))}
        if not {kinds.get("X"), kinds.get("y")} <= {"uint8", "double"}:
            raise ValueError(f"it holds {kinds or 'nothing'}, not the numbers X and y")
        arrays = loadmat(str(path), variable_names=["X", "y"])
        x = arrays["X"]
        y = arrays["y"].ravel()
    except Exception as error:  # a damaged or foreign file can raise nearly anything
        raise ValueError(
            f"{path} cannot be read, damaged or not this data set: {error}; "
            "move it away and fetch it again"
        ) from error

    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3):
        raise ValueError(f"{path}: X must be uint8 (32, 32, 3, N); got {x.dtype} {x.shape}")
    if y.shape != x.shape[3:] or not np.isin(y, np.arange(11)).all():
        raise ValueError(
            f"{path}: y must hold a digit from 0 to 10 for each of {x.shape[3]} images"
        )
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(3, 2, 0, 1)))
    return images, torch.from_numpy(y.astype(np.int64) % 10)


def check_unpacked_size(path: Path) -> None:
    """Raise if the elements of a .mat file (version 5) unpack to more than MAX_BYTES.

    A header of 128 bytes ends in two bytes for the byte order. Then each element starts with a tag:
    its type and its length, of 4 bytes each.
    """
    total = 0
    with open(path, "rb") as file:
        mark = file.read(128)[126:128]
        if mark not in (b"IM", b"MI"):
            raise ValueError("it is not a .mat file of version 5")
        order: Literal["little", "big"] = "little" if mark == b"IM" else "big"

        while len(tag := file.read(8)) == 8:
            kind = int.from_bytes(tag[:4], order)
            length = int.from_bytes(tag[4:], order)
            if kind == COMPRESSED:
                total += unpacked_size(file, length)
            else:
                total += length
                file.seek(length, 1)
            if total > MAX_BYTES:
                raise ValueError("it unpacks to far more than the data set")


def unpacked_size(file: BinaryIO, length: int) -> int:
    """Count what `length` compressed bytes unpack to, without keeping it; past MAX_BYTES, stop."""
    engine = zlib.decompressobj()
    total = 0
    while length and total <= MAX_BYTES:
        block = file.read(min(length, 1 << 16))
        if not block:
            raise ValueError("it is cut short")
        length -= len(block)
        total += len(engine.decompress(block))  # at most 64 MB at once: deflate packs 1,032 to 1
    return total


def svhn(
    root: Path = Path("data"),
    train: int | None = None,
    val: int = 5000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    extra: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
    download: bool = False,
) -> Dataset:
    """Load SVHN: by default 68,257 training, 5,000 validation and 26,032 test images.

    `extra` adds the 531,131 easier images to the training set. `augment` crops (padding 4)
    and does not flip; see `make_dataset` for the rest.
    Reference: Netzer et al. (2011), Reading digits in natural images with unsupervised learning.
    """
    images = load_svhn(root, download, extra)
    return make_dataset(images, train, val, test, noise, standardise, augment, seed, shift)
