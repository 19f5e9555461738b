"""Tokens and pixels: outputs for every position of a sequence or an image, as rows with groups."""

from typing import NamedTuple

import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.conversion import to_tensor
from toosure.metrics.inputs import ArrayLike
from toosure.metrics.label_hints import mark_hint


class FlatPositions(NamedTuple):
    """Positions as rows, and the sequence or image of each."""

    outputs: Tensor  # (M, C), or (M,) of a binary classifier
    labels: Tensor  # (M,)
    groups: Tensor  # (M,) int64, number of the sequence or image
    group_name: str  # "sequence" or "image"


def flatten_positions(
    outputs: ArrayLike, labels: ArrayLike, ignore_index: int | None = -100
) -> FlatPositions:
    """Return outputs of tokens or pixels as rows (M, C), without the positions to ignore.

    Tokens are (N, T, C) with labels (N, T), pixels (N, C, H, W) with labels (N, H, W); where the
    classes fit only in the other place, they are taken from there. Of a binary classifier the
    outputs may have the shape of the labels, (N, H, W), or one channel, (N, 1, H, W).

    >>> rows = flatten_positions(torch.zeros(2, 3, 5), torch.tensor([[0, 1, -100], [4, 2, 0]]))
    >>> rows.outputs.shape, rows.groups.tolist()
    (torch.Size([5, 5]), [0, 0, 1, 1, 1])
    """
    outputs = to_tensor(outputs)
    labels = to_tensor(labels).to(outputs.device)
    rows = class_rows(outputs, labels)
    n = len(labels)
    groups = torch.arange(n, device=labels.device).repeat_interleave(labels[0].numel() if n else 0)
    flat = labels.reshape(-1)
    name = "sequence" if labels.ndim == 2 else "image"
    if ignore_index is None:
        return FlatPositions(rows, flat, groups, name)

    kept = flat != ignore_index
    if not bool(kept.any()):
        raise ValueError(f"every label is ignore_index, {ignore_index}: nothing is left to measure")
    flat = flat[kept]
    check_marks(flat, 2 if is_one_column(rows) else rows.shape[1])
    return FlatPositions(rows[kept], flat, groups[kept], name)


def check_marks(labels: Tensor, classes: int) -> None:
    """Raise if the one number that is no class may mark positions without a label."""
    strange = labels[(labels < 0) | (labels >= classes)].unique().tolist()
    hint = mark_hint(strange[0], "positions without a label") if len(strange) == 1 else ""
    if hint:
        raise ValueError(f"labels must be integers in [0, {classes}); got {strange[0]}{hint}")


def class_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return outputs (M, C), classes last, or (M,) where there is one output per position."""
    axis = class_axis(tuple(outputs.shape), tuple(labels.shape))
    if axis is None:
        return outputs.reshape(-1)
    return outputs.movedim(axis, -1).reshape(-1, outputs.shape[axis])


def class_axis(outputs: tuple[int, ...], labels: tuple[int, ...]) -> int | None:
    """Return which axis of outputs holds the classes, by shape; None for one output per position.

    >>> class_axis((8, 5, 9), (8, 5)), class_axis((8, 3, 4, 4), (8, 4, 4))
    (2, 1)
    """
    many = len(outputs) >= 3
    if many and outputs == labels:
        return None

    last = many and outputs[:-1] == labels
    second = many and (outputs[0], *outputs[2:]) == labels
    if last and (len(outputs) == 3 or not second):
        return len(outputs) - 1
    if second:
        return 1
    raise ValueError(
        "outputs of tokens are (N, T, C) with labels (N, T), of pixels (N, C, H, W) with labels "
        f"(N, H, W); got {outputs} and {labels}"
    )
