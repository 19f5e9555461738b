"""The 1,797 handwritten digits that come with scikit-learn: no download, a second of training."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Images, hold_out, make_dataset
from toosure.data.standardise import Standardise


def load_digits() -> Images:
    """Read the digits as uint8 images (N, 1, 8, 8) with values 0 to 16, all as training images."""
    table = read_table()
    x = torch.tensor(table[:, :-1], dtype=torch.uint8).reshape(-1, 1, 8, 8)
    y = torch.tensor(table[:, -1], dtype=torch.int64)
    names = tuple(str(digit) for digit in range(10))
    return Images(x, y, x[:0], y[:0], names, white=16)


def read_table() -> np.ndarray:
    """Read one row per digit: its 64 pixels, then its class."""
    package = find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():  # importing scikit-learn to read it takes two seconds
            return np.loadtxt(file, delimiter=",")

    from sklearn import datasets

    bunch = datasets.load_digits()
    return np.column_stack([bunch.data, bunch.target])


def digits(
    train: int | None = None,
    val: int = 300,
    test: int = 500,
    noise: float = 0.0,
    standardise: Standardise = "global",
    seed: int = 0,
    shift: Shift | None = None,
) -> Dataset:
    """Load scikit-learn's 8 x 8 digits, split by seed: by default 997 train, 300 val, 500 test.

    Reference: Alpaydin and Kaynak (1998), Optical recognition of handwritten digits, UCI.

    >>> data = digits(train=200)
    >>> data.inputs, data.classes, len(data.train), len(data.val), len(data.test)
    ((1, 8, 8), 10, 200, 300, 500)
    """
    images = hold_out(load_digits(), test, seed)
    return make_dataset(
        images,
        train,
        val,
        noise=noise,
        standardise=standardise,
        seed=seed,
        shift=shift,
    )
