"""Check the arguments of a controller: the control split, and counts."""

import operator
from collections.abc import Callable, Iterable
from typing import SupportsIndex

import torch
from torch import Tensor

from toosure.metrics.inputs import as_pair

FIRST = 1024  # control examples of the first pass, when a controller is made


def check_split(
    predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, weights: torch.dtype
) -> None:
    """Raise now on inputs and labels at which a look would fail in the middle of training."""
    try:
        logits = predict(x[:FIRST])
    except RuntimeError as error:
        if x.dtype == weights or not x.is_floating_point():
            raise
        raise ValueError(
            f"the model does not take the control inputs: they are {x.dtype} and its weights "
            f"{weights}; convert them by .to({weights})"
        ) from error
    # One row is enough to learn the number of classes, for the check of the labels.
    as_pair(logits[:1].expand(len(y), *logits.shape[1:]), y)


def pair_of(control: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return inputs and labels; raise unless they are two tensors of the same length."""
    parts = list(control) if isinstance(control, tuple | list) or hasattr(control, "y") else []
    if len(parts) == 2 and all(isinstance(part, Tensor) for part in parts):
        x, y = parts
        if len(x) == len(y) >= 2:
            return x, y
        raise ValueError(
            "control needs as many labels as inputs, and at least two examples; got "
            f"{len(x)} inputs and {len(y)} labels"
        )

    of = f" of {' and '.join(type(part).__name__ for part in parts)}" if parts else ""
    raise ValueError(
        "control takes two tensors, inputs and labels, cut from the training "
        f"data; got {type(control).__name__}{of}"
    )


def check_classes(y: Tensor) -> None:
    """Raise on a control split of one class."""
    first = y.flatten()[0]
    if bool((y == first).all()):
        raise ValueError(
            f"the control split holds one class only ({first.item():g}), which says nothing of "
            "the others: draw it at random from the training data, and large enough"
        )


def whole_count(name: str, count: SupportsIndex, meaning: str) -> int:
    """Return a count as an int; raise for a float, as of steps / micro-batches, or below 1."""
    try:
        whole = operator.index(count)
    except TypeError:
        whole = 0
    if whole < 1:
        raise ValueError(f"{name} is {meaning}, a whole number (int), at least 1; got {count}")
    return whole
