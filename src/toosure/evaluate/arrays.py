"""Predictions from arrays in memory: binary, many classes, tokens or pixels, with groups."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.conversion import holds_text
from toosure.metrics.group_draws import group_numbers
from toosure.metrics.inputs import ArrayLike, one_of
from toosure.metrics.positions import flatten_positions
from toosure.predictions import Predictions, from_logits, from_probs
from toosure.predictions.labels import class_numbers
from toosure.predictions.predictions import as_tensor


def predictions_of(
    predictions: Predictions | ArrayLike | None,
    labels: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    ignore_index: int | None = -100,
    groups: ArrayLike | None = None,
    names: tuple[str, ...] = (),
) -> Predictions:
    """Return predictions unchanged, or make them from logits or probabilities with labels.

    The kind follows from the shape: (N,) or (N, 1) is binary, (N, C) has classes, (N, T, C) tokens
    and (N, C, H, W) pixels. Tokens and pixels are grouped by their sequences or images.

    >>> predictions_of([2.0, -1.0, 0.5], [1, 0, 0]).binary
    True
    """
    if isinstance(predictions, Predictions):
        if labels is not None or probs is not None:
            raise ValueError("predictions hold their labels: give nothing besides them")
        checked = predictions
    else:
        labels = numbered(labels, names)
        checked = from_arrays(predictions, labels, probs, ignore_index, groups)
        groups = None

    if groups is not None:
        checked = replace(checked, groups=group_numbers(groups, checked.n))
    if names and checked.classes is not None and len(names) != checked.classes:
        raise ValueError(
            f"names must be the {checked.classes} classes, in the order of the columns; got "
            f"{len(names)}: {', '.join(map(str, names))}"
        )
    return replace(checked, names=tuple(names)) if names else checked


def numbered(labels: ArrayLike | None, names: tuple[str, ...]) -> ArrayLike | None:
    """Return labels that are names of classes as their numbers, and numbers as they are.

    >>> numbered(["dog", "cat"], ("cat", "dog")).tolist()
    [1, 0]
    """
    if labels is None or isinstance(labels, Tensor) or not holds_text(labels):
        return labels
    if not names:
        raise ValueError(
            "labels are names: say names=(...), the classes in the order of the columns, or give "
            "class numbers"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"names must differ, where labels are names; got {', '.join(names)}")
    return class_numbers(np.asarray(labels).astype(str), names, len(names), names_given=True)


def from_arrays(
    logits: ArrayLike | None,
    labels: ArrayLike | None,
    probs: ArrayLike | None,
    ignore_index: int | None,
    groups: ArrayLike | None,
) -> Predictions:
    """Return the predictions of arrays, without the rows to ignore."""
    outputs = as_tensor(one_of(logits, probs), "logits" if probs is None else "probs")
    if labels is None:
        raise ValueError("labels are missing: give the true class of each row or position")
    truth = as_tensor(labels, "labels")
    take = from_logits if probs is None else from_probs

    if outputs.ndim > 2:
        rows = flatten_positions(outputs, truth, ignore_index)
        own = rows.groups
        group_name = rows.group_name
        if groups is not None:  # (N,), one for each sequence or image
            own = group_numbers(groups, len(truth))[rows.groups]
            group_name = "group"
        checked = take(rows.outputs, rows.labels)
        return replace(checked, groups=checked_groups(own), group_name=group_name)

    if truth.ndim == 2 and truth.shape[1] > 1 and outputs.shape == truth.shape:
        check_not_multilabel(truth)
    if truth.ndim and len(truth) != len(outputs):
        raise ValueError(f"{len(outputs):,} rows of predictions, but {len(truth):,} labels")
    kept = rows_kept(outputs, truth, ignore_index)
    checked = take(outputs[kept], truth[kept])
    if groups is None:
        return checked
    of_all = group_numbers(groups, len(outputs))
    return replace(checked, groups=group_numbers(of_all[kept.cpu()], checked.n))


def checked_groups(groups: Tensor) -> Tensor | None:
    """Number groups from 0 to G - 1; return None for a single group, which has no spread."""
    index = groups.unique(return_inverse=True)[1]
    return index if int(index.max()) > 0 else None


def rows_kept(outputs: Tensor, labels: Tensor, ignore_index: int | None) -> Tensor:
    """Return which rows have a label that is not to be ignored, (N,) bool."""
    n = len(outputs)
    if ignore_index is None or labels.shape[:1] != (n,) or not is_one_column(labels):
        return torch.ones(n, dtype=torch.bool)

    kept = labels.reshape(-1) != ignore_index
    if n and not bool(kept.any()):
        raise ValueError(f"every label is ignore_index, {ignore_index}: nothing is left to measure")
    return kept


def check_not_multilabel(labels: Tensor) -> None:
    """Refuse a label for every output unless the rows are one-hot: multilabel is another kind."""
    is_01 = bool(((labels == 0) | (labels == 1)).all())
    if is_01 and bool((labels.sum(1) != 1).any()):
        raise ValueError(
            "several labels per row, one for every output: these are independent binary outputs; "
            "say multilabel=True"
        )
