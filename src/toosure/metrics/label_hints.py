"""What labels that are refused really are, and the remedy where their values bear it out."""

import torch
from torch import Tensor


def shape_hint(labels: Tensor, n: int, classes: int) -> str:
    """Say what labels of another shape are, where their values tell; else nothing."""
    if labels.shape == (n, 1) and n > 0:
        return ": take the column, labels[:, 0]"
    if labels.shape != (n, classes) or labels.is_complex():
        return ""

    ones = (labels == 1).sum(1)
    if not bool(((labels == 0) | (labels == 1)).all()):
        return ": one row per class and example, and not one-hot; give the number of the true class"
    if bool((ones == 1).all()):
        return ": argmax(1) turns one-hot rows into numbers"

    row = int((ones != 1).nonzero()[0])
    return (
        f": several labels per row (row {row} has {int(ones[row])}), which no class number says; "
        "measure one class k at a time, as two classes: torch.stack([0 * z[:, k], z[:, k]], 1) of "
        "logits z, or probs=torch.stack([1 - p[:, k], p[:, k]], 1), with labels[:, k]"
    )


def type_hint(labels: Tensor, classes: int) -> str:
    """Name the type of labels that are no integers, and the remedy where the values allow one."""
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
            f"{name} that are no class numbers, such as {float(labels[row]):g} in row {row} "
            "(targets of a regression, or soft labels?)"
        )
    return f"{name}: convert them with .long() or .astype(int)"


def one_column_hint(outputs: Tensor) -> str:
    """Say how the one column of a two-class problem becomes two."""
    low, high = torch.stack(torch.aminmax(outputs.detach())).tolist()
    if low >= 0 and high <= 1:
        return (
            "one column is one class; of two classes, probabilities p are "
            "probs=torch.cat([1 - p, p], 1), and logits z are torch.cat([0 * z, z], 1)"
        )
    return "one column is one class; of two classes, logits z are torch.cat([0 * z, z], 1)"
