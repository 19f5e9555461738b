"""Data of your own in an .npz file: arrays of inputs and labels, split and standardised."""

import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.data.corruptions import Shift, check_shift
from toosure.data.dataset import Dataset, draw_indices, draw_val_and_train, flip_labels
from toosure.data.own_data import (
    Pair,
    as_split,
    check_same_shape,
    checked_pair,
    class_codes,
    plain_labels,
)
from toosure.data.seeds import DataStream, derive_seed
from toosure.data.standardise import Standardise, array_statistics

INPUT_NAMES = ("x", "inputs", "images", "features", "data")
LABEL_NAMES = ("y", "labels", "label", "targets", "target")
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
CLASS_NAMES = ("names", "classes", "class_names")
OBJECTS = "it holds Python objects, as pandas gives names: save them as np.array(names, dtype=str)"
HELD_OUT = 5  # one row in five is held out where a split is missing


def arrays(
    path: Path,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
) -> Dataset:
    """Load an .npz of `x` and `y`, or of `train_x`, `train_y`, `val_x`, ..., `test_y`.

    `x_train`, `train_images`, `train_labels` and the like are read too. Rows may be images (bytes,
    or floats in [0, 1]), a table, or sequences of whole numbers; labels are class numbers or names.
    A split that the file lacks is held out by seed: a fifth of the rows for the test, a fifth of
    the others for validation, or as many as `test` and `val` say (val=0: none). `standardise` is
    per channel of an image, or per column of a table; sequences of whole numbers stay as they are.
    """
    path = Path(path).expanduser()
    stored = read_npz(path)
    pairs = pairs_in(stored, str(path))
    codes, names = class_codes({name: y for name, (_, y) in pairs.items()}, names_in(stored))
    splits = {
        name: (as_images(x) if x.dtype == torch.uint8 else x, codes[name])
        for name, (x, _) in pairs.items()
    }
    if "test" not in splits:
        splits |= hold_out_test(splits["train"], test, seed)
    elif test is not None:
        splits["test"] = first_drawn(splits["test"], test, seed)

    x, y = splits["train"]
    if "val" in splits:
        if val is not None:
            raise ValueError(f"{path} has validation rows of its own: leave val={val} out")
        _, rows = draw_val_and_train(len(y), 0, train, seed)
    else:
        count = (len(y) if train is None else len(y) - train) // HELD_OUT if val is None else val
        val_rows, rows = draw_val_and_train(len(y), max(0, count), train, seed)
        if len(val_rows):
            splits["val"] = (x[val_rows], y[val_rows])
    splits["train"] = (x[rows], y[rows])

    mean, std, white = array_statistics(splits["train"][0], standardise)
    made = {
        name: as_split(standardised_rows(x, mean, std, white), y) for name, (x, y) in splits.items()
    }
    data = Dataset(made["train"], made.get("val"), made["test"], names, mean, std, augment)
    check_image_options(data, augment, shift)
    noisy = flip_labels(data.train.y, len(names), noise, seed)
    return replace(data, train=replace(data.train, y=noisy), shift=shift)


# -- files ----------------------------------------------------------------------------------------


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; write arrays:FILE.npz")
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("one array, and labels are needed too: write an .npz of x and y")
        with file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = OBJECTS if "Object arrays" in str(error) else error
        raise ValueError(f"{path} cannot be read as an .npz of arrays: {reason}") from None


def pairs_in(stored: Mapping[str, np.ndarray], source: str) -> dict[str, Pair]:
    """Return inputs and labels by split; rows without a split are training rows."""
    parts: dict[str, dict[str, str]] = {}  # split -> "x" or "y" -> name in the file
    for name in stored:
        place = place_of(name)
        if place is not None:
            split, side = place
            earlier = parts.setdefault(split, {}).setdefault(side, name)
            if earlier != name:
                raise ValueError(f"{source} has {earlier!r} and {name!r}: which one is it?")

    if "all" in parts and len(parts) > 1:
        raise ValueError(
            f"{source} has {', '.join(map(str, stored))}: name the split of each, as x_train, "
            "y_train, x_test, y_test"
        )
    if "all" in parts:
        parts = {"train": parts["all"]}
    incomplete = [split for split, sides in parts.items() if set(sides) != {"x", "y"}]
    if "train" not in parts or incomplete:
        missing = f"the {'inputs or labels' if incomplete else 'rows'} of"
        raise ValueError(
            f"{source} holds {', '.join(map(str, stored)) or 'nothing'}, and lacks {missing} "
            f"{(incomplete or ['train'])[0]}: name them x and y, or train_x, train_y, test_x, ..."
        )

    pairs = {
        split: checked_pair(stored[sides["x"]], stored[sides["y"]], f"{source}, {split}")
        for split, sides in parts.items()
    }
    check_same_shape(pairs, source)
    return pairs


def place_of(name: str) -> tuple[str, str] | None:
    """Return the split of an array, "all" without one, and whether it is inputs x or labels y.

    >>> place_of("x_train"), place_of("val_labels"), place_of("X"), place_of("meta")
    (('train', 'x'), ('val', 'y'), ('all', 'x'), None)
    """
    words = [word for word in re.split(r"[_.\- ]+", name.lower()) if word]
    splits = [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]
    sides = [
        side
        for word in words
        for side, known in (("x", INPUT_NAMES), ("y", LABEL_NAMES))
        if word in known
    ]
    if len(sides) != 1 or len(splits) > 1 or len(words) != 1 + len(splits):
        return None
    return (splits[0] if splits else "all"), sides[0]


def names_in(stored: Mapping[str, np.ndarray]) -> tuple[str, ...] | None:
    """Return the names of the classes, if the file has them."""
    names = next((stored[name] for name in CLASS_NAMES if name in stored), None)
    return None if names is None else tuple(str(name) for name in plain_labels(names).tolist())


# -- rows -----------------------------------------------------------------------------------------


def as_images(x: Tensor) -> Tensor:
    """Return bytes as images (N, C, H, W), the channels moved from the end if they stand there."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        return x.permute(0, 3, 1, 2).contiguous()
    return x


def hold_out_test(
    rows: tuple[Tensor, Tensor], test: int | None, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return training and test rows, drawn by seed."""
    x, y = rows
    count = len(y) // HELD_OUT if test is None else test
    if count < 1:
        raise ValueError(f"test={count} of {len(y)} rows leaves nothing to judge a run on")
    own_seed = derive_seed(seed, DataStream.TEST_SPLIT)
    test_rows, train_rows = draw_indices("labelled", len(y), [count, None], own_seed)
    return {"train": (x[train_rows], y[train_rows]), "test": (x[test_rows], y[test_rows])}


def first_drawn(rows: tuple[Tensor, Tensor], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return `count` of the rows, drawn by seed."""
    x, y = rows
    (chosen,) = draw_indices("test", len(y), [count], seed)
    return x[chosen], y[chosen]


def standardised_rows(x: Tensor, mean: Tensor, std: Tensor, white: float) -> Tensor:
    """Return (x / white - mean) / std as floats; sequences of whole numbers as they are."""
    if x.dtype == torch.int64:
        return x
    return (x.float() / white - mean) / std


def check_image_options(data: Dataset, augment: bool, shift: Shift | None) -> None:
    """Raise where an option of images is given for other rows."""
    if augment and len(data.inputs) != 3:
        raise ValueError(f"augment=true is for images (C, H, W); rows here are {data.inputs}")
    if shift is not None:
        check_shift(shift, torch.empty(0, *data.inputs))
