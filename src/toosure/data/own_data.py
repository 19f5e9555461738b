"""Data of your own: the splits that a function of yours returns, checked."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.data.dataset import Dataset, Split

Pair = tuple[Tensor, np.ndarray]  # inputs, and labels as they came


def as_dataset(value: Any, source: str) -> Dataset:
    """Turn what a user's function returned into a data set.

    It may return a `Dataset`, a dict of pairs (inputs, labels) by "train", "val" and "test", or a
    tuple of pairs: (train, test) or (train, val, test). A map-style data set of torch is a pair
    too. Inputs are taken as they are.

    >>> x, y = torch.randn(9, 4), torch.arange(9) % 3
    >>> data = as_dataset(((x, y), (x, y)), "mine:data")
    >>> data.inputs, data.classes, data.val is None
    ((4,), 3, True)
    """
    if isinstance(value, Dataset):
        return value

    if isinstance(value, tuple | list) and len(value) in (2, 3):
        order = ("train", "test") if len(value) == 2 else ("train", "val", "test")
        value = dict(zip(order, value, strict=True))
    if isinstance(value, Mapping):
        value = {name: part for name, part in value.items() if part is not None}
    if not isinstance(value, Mapping) or not {"train", "test"} <= set(value):
        raise ValueError(
            f"{source} returned {described(value)}: return (train, val, test), each a pair of "
            "inputs and labels, or a dict of them, or a toosure.data.Dataset"
        )
    unknown = sorted(set(value) - {"train", "val", "test"})
    if unknown:
        raise ValueError(f"{source} returned a split called {unknown[0]!r}: train, val or test")

    pairs = {
        name: checked_pair(*pair_of(part, f"{source}, {name}"), f"{source}, {name}")
        for name, part in value.items()
    }
    check_same_shape(pairs, source)
    codes, names = class_codes({name: y for name, (_, y) in pairs.items()}, None)
    splits = {name: as_split(x, codes[name]) for name, (x, _) in pairs.items()}
    zero, one = torch.zeros(()), torch.ones(())
    return Dataset(splits["train"], splits.get("val"), splits["test"], names, zero, one)


def pair_of(part: Any, source: str) -> tuple[Any, Any]:
    """Return inputs and labels of a pair, or of all examples of a map-style data set."""
    if isinstance(part, tuple | list) and len(part) == 2:
        return part[0], part[1]
    if not hasattr(part, "__getitem__") or not hasattr(part, "__len__"):
        raise ValueError(f"{source}: a pair of inputs and labels is needed; got {described(part)}")

    examples = [part[i] for i in range(len(part))]
    if not examples or any(not isinstance(e, tuple | list) or len(e) < 2 for e in examples):
        raise ValueError(f"{source}: examples must be (input, label); got {described(part)}")
    inputs = [torch.as_tensor(np.asarray(example[0])) for example in examples]
    return torch.stack(inputs), [int(example[1]) for example in examples]


def checked_pair(inputs: Any, labels: Any, source: str) -> Pair:
    """Return inputs that a network can take, with one label each."""
    y = plain_labels(labels)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"{source}: labels must be one class per row; got shape {y.shape}")

    numbers = f"{source}: inputs must be an array of real numbers"
    try:
        x = inputs if isinstance(inputs, Tensor) else torch.as_tensor(writable(inputs))
    except (TypeError, ValueError):
        raise ValueError(numbers) from None
    if x.is_complex():
        raise ValueError(numbers)
    if x.ndim < 2:
        raise ValueError(f"{source}: inputs need two axes or more (rows, ...); got {x.ndim}")
    if len(x) != len(y) or len(y) == 0:
        raise ValueError(f"{source}: {len(x):,} rows of inputs and {len(y):,} labels")
    if x.is_floating_point():
        x = x.float()
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{source}: inputs hold NaN or infinite numbers")
    elif x.dtype != torch.uint8:
        x = x.float() if x.dtype == torch.bool else x.long()
    return x.cpu(), y


def plain_labels(labels: Any) -> np.ndarray:
    """Return labels as an array of numbers or of texts: those of pandas are objects."""
    y = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    if y.dtype.kind == "O":
        y = np.array(y.tolist())
    return np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y


def writable(values: Any) -> np.ndarray:
    """Return an array, copied if it is read-only, of which torch would warn."""
    array = np.asarray(values)
    return array if array.flags.writeable else array.copy()


def check_same_shape(pairs: Mapping[str, Pair], source: str) -> None:
    """Raise where the rows of two splits differ in shape or type."""
    kinds = {(tuple(x.shape[1:]), x.dtype) for x, _ in pairs.values()}
    if len(kinds) > 1:
        shown = ", ".join(f"{s}: {tuple(x.shape)} {x.dtype}" for s, (x, _) in pairs.items())
        raise ValueError(f"{source}: rows of the splits differ: {shown}")


def class_codes(
    labels: Mapping[str, np.ndarray], names: Sequence[str] | None
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return labels as class numbers from 0, and the names of the classes."""
    kinds = {y.dtype.kind for y in labels.values()}
    if "O" in kinds or ("U" in kinds and len(kinds) > 1):
        raise ValueError("labels must be class numbers or names, all of one kind")
    values = np.unique(np.concatenate([np.unique(y) for y in labels.values()]))
    if values.dtype.kind == "U":
        order = tuple(map(str, values)) if names is None else tuple(names)
        unknown = sorted(set(map(str, values)) - set(order))
        if unknown:
            raise ValueError(f"label {unknown[0]!r} is not among the class names")
        number = {name: k for k, name in enumerate(order)}
        codes = {s: torch.tensor([number[str(v)] for v in y]) for s, y in labels.items()}
        return codes, order

    whole = values.dtype.kind in "iubf" and np.isfinite(values) & (values == np.floor(values))
    if not np.all(whole):
        odd = values[~np.broadcast_to(whole, values.shape)][0]
        raise ValueError(f"labels must be class numbers or names; got {odd}")
    low, high = int(values[0]), int(values[-1])
    if low == 1 and (names is None or high == len(names)):
        raise ValueError(f"labels go from 1 to {high}: subtract 1, classes are numbered from 0")
    if low < 0 or (names is not None and high >= len(names)):
        limit = f"{len(names)} class names" if names is not None else "classes from 0"
        raise ValueError(f"labels go from {low} to {high}, with {limit}")
    if high == 0:
        raise ValueError("all labels are 0: a classifier needs two classes")
    codes = {s: torch.from_numpy(y.astype(np.int64)) for s, y in labels.items()}
    return codes, tuple(names) if names is not None else tuple(map(str, range(high + 1)))


def as_split(x: Tensor, y: Tensor) -> Split:
    return Split(x, y, y, torch.arange(len(y)))


def described(value: Any) -> str:
    """Say what came, for an error."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(str, value)) or 'nothing'}"
    return f"a {type(value).__name__}"
