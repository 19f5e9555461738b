"""The input of `setup`: the splits of a data set, or the tensors of your own loop."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.data import Dataset, Split

Pair = tuple[Tensor, Tensor]  # inputs and labels


@dataclass(frozen=True)
class Splits:
    """The part of a data set that objectives read, made of tensors."""

    train: Split
    val: Split | None = None

    @property
    def examples(self) -> int:
        return len(self.train)


def splits_of(data: object) -> Dataset | Splits:
    """Return a data set as it is, and (x, y) or ((x, y), (val_x, val_y)) as splits.

    >>> pair = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
    >>> splits_of(pair).examples, splits_of((pair, pair)).val.y
    (4, tensor([0, 1, 1, 0]))
    """
    if hasattr(data, "train") or hasattr(data, "val"):
        parts = [getattr(data, name, None) for name in ("train", "val")]
        if all(part is None or hasattr(part, "y") for part in parts):
            return cast(Dataset, data)

    elif isinstance(data, tuple) and len(data) == 2:
        pairs = data if isinstance(data[0], tuple) else (data,)
        if all(is_pair(pair) for pair in pairs):
            return Splits(*(split_of(pair) for pair in pairs))

    raise ValueError(
        "setup takes a data set of toosure.data, tensors (x, y) to train on, or ((x, y), (val_x, "
        f"val_y)); got {type(data).__name__}: of a TensorDataset, give its .tensors"
    )


def validation_split(data: object, objective: str) -> Split:
    """Return the validation split; raise, naming the objective, if there is none."""
    val = splits_of(data).val
    if val is None or len(val) == 0:
        raise ValueError(
            f"{objective} corrects itself on validation data: name a val size, or in your own loop "
            "call setup(model, ((x, y), (val_x, val_y)))"
        )
    return val


def cut_meta_split(
    splits: Dataset | Splits, share: float, generator: torch.Generator
) -> tuple[Split, Dataset | Splits]:
    """Draw a share of the training split, or a number of examples; return it and the rest.

    >>> pair = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
    >>> meta, rest = cut_meta_split(splits_of(pair), 0.25, torch.Generator())
    >>> len(meta), rest.examples
    (1, 3)
    """
    n = len(splits.train)
    size = int(share if share >= 1 else share * n)
    if not 0 < size < n:
        raise ValueError(f"a meta split of {size} cannot be cut from {n} training examples")

    order = torch.randperm(n, generator=generator).to(splits.train.x.device)
    meta = splits.train.take(order[:size].sort().values)
    rest = splits.train.take(order[size:].sort().values)
    return meta, replace(splits, train=rest)


def is_pair(pair: object) -> bool:
    """Whether it is inputs and labels, as many of each."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    x, y = pair
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return False
    return x.shape[:1] == y.shape[:1] and is_one_column(y)


def split_of(pair: Pair) -> Split:
    """Return inputs and labels as a split whose labels are clean and in their own order."""
    x, y = pair
    return Split(x, y, clean=y, indices=torch.arange(len(y), device=y.device))
