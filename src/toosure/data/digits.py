"""The 1,797 handwritten digits that come with scikit-learn: no download, a second of training."""

import torch

from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Images, hold_out, make_dataset
from toosure.data.standardise import Standardise


def load_digits() -> Images:
    """Read the digits as uint8 images (N, 1, 8, 8) with values 0 to 16, all as training images."""
    from sklearn import datasets  # slow to import, and only needed here

    bunch = datasets.load_digits()
    x = torch.tensor(bunch.images, dtype=torch.uint8)[:, None]
    y = torch.tensor(bunch.target, dtype=torch.int64)
    names = tuple(str(name) for name in bunch.target_names)
    return Images(x, y, x[:0], y[:0], names, white=16)


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
