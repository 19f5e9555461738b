"""Hints for refused labels: what they may be, and what to do where their values confirm it."""

import torch
from torch import Tensor

USUAL_MARKS = (-1, 255)  # of what has no label, beside torch's -100


def shape_hint(labels: Tensor, n: int, classes: int) -> str:
    """Guess what labels of a wrong shape are, from their values; "" without a guess."""
    if labels.shape == (n, 1) and n > 0:
        return ": take the column, labels[:, 0]"
    if labels.shape != (n, classes) or labels.is_complex():
        return ""

    if not bool(((labels == 0) | (labels == 1)).all()):
        return ": one row per class and example, and not one-hot; give the number of the true class"
    if not are_independent(labels):
        return ": argmax(1) turns one-hot rows into numbers"

    ones = (labels == 1).sum(1)
    row = int((ones != 1).nonzero()[0])
    return (
        f": several labels per row (row {row} has {int(ones[row])}), which no class number says; "
        "measure all with toosure.metrics.multilabel_calibration(z, labels), or one class k at a "
        "time: z[:, k] of logits z, or probs=p[:, k], with labels[:, k]"
    )


def are_independent(labels: Tensor) -> bool:
    """Whether rows of 0 and 1 name several classes, or none, so that they are not one-hot."""
    binary = bool(((labels == 0) | (labels == 1)).all())
    return binary and bool(((labels == 1).sum(1) != 1).any())


def range_hint(low: int, high: int, classes: int) -> str:
    """Say what labels beyond the number of classes need; "" for labels below 0."""
    if (low, high) == (1, classes):
        return ": labels start at 1; subtract 1"
    if low < 0:
        return ""
    return f": the outputs have {classes} columns, and a label {high} needs {high + 1}"


def mark_hint(label: float, what: str) -> str:
    """Say how to leave out what a usual mark stands for; "" for another label.

    >>> mark_hint(-1, "unknown targets"), mark_hint(7, "unknown targets")
    (': if -1 marks unknown targets, say ignore_index=-1, or --ignore-index -1', '')
    """
    if label not in USUAL_MARKS:
        return ""
    mark = f"{label:g}"
    return f": if {mark} marks {what}, say ignore_index={mark}, or --ignore-index {mark}"


def type_hint(labels: Tensor, classes: int) -> str:
    """Name the type of labels that are not integers, and the remedy if the values allow one."""
    name = str(labels.dtype).removeprefix("torch.")
    if labels.is_complex():
        return name
    if labels.dtype == torch.bool:
        if classes > 2:
            return f"{name}, which cannot say which of {classes} classes is true"
        return f"{name}: convert them with .long() or .astype(int)"

    fractional = (labels != labels.round()) | ~labels.isfinite()
    if bool(fractional.any()):
        row = int(fractional.nonzero()[0])
        return (
            f"{name} that are not class numbers, such as {float(labels[row]):g} in row {row} "
            "(targets of a regression, or soft labels?)"
        )
    return f"{name}: convert them with .long() or .astype(int)"
