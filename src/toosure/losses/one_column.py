"""Losses of a binary classifier: one logit per example, with labels as `BCEWithLogitsLoss` has."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.binary import is_one_column, one_column, two_columns


def class_pair(loss: nn.Module | None, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) and labels unchanged; turn one logit per example into two columns."""
    if is_one_column(logits):
        return two_class_pair(loss, logits, labels)
    return logits, labels


def two_class_pair(loss: nn.Module | None, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return one logit per example, (N,) or (N, 1), as two columns, and its labels as classes (N,).

    Labels are 0 and 1 of any type, (N,) or (N, 1). Nothing waits for a GPU: another label there
    becomes class 2, which the loss refuses as it does any class that is not there.
    """
    n = logits.numel()
    if not logits.is_floating_point() or not is_one_column(labels) or len(labels) != n:
        raise ValueError(
            f"one logit per example needs floating logits and labels ({n},) or ({n}, 1); got "
            f"{logits.dtype} {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if loss is not None and (reason := reason_against(loss)) is not None:
        raise ValueError(reason)

    labels = labels.reshape(-1)
    valid = (labels == 0) | (labels == 1)
    if values_can_be_read(labels) and not bool(valid.all()):
        row = int((~valid).nonzero()[0])
        raise ValueError(
            "labels of one logit per example are 0 and 1, or booleans; got "
            f"{labels[row].item():g} in row {row}"
        )
    return two_columns(logits), torch.where(valid, labels.long(), 2)


def reason_against(loss: nn.Module) -> str | None:
    """Return why a loss, or a part of it, cannot take one logit per example; None if it can."""
    for part in loss.modules():
        reason = getattr(part, "one_column", True)
        if isinstance(reason, str):
            return reason
    return None


def values_can_be_read(labels: Tensor) -> bool:
    """Whether values can be read: on the CPU, and not traced by torch.compile or func."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return labels.device.type == "cpu" and len(labels) > 0 and not traced


def binary_cross_entropy_rows(loss: nn.BCEWithLogitsLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return torch's binary cross-entropy of each row, (N,), from two columns and classes."""
    if logits.shape[1] != 2:
        raise ValueError(
            f"BCEWithLogitsLoss is of one logit per example; got {logits.shape[1]} classes: take "
            "CrossEntropyLoss"
        )
    z = one_column(logits)
    return F.binary_cross_entropy_with_logits(
        z, labels.to(z.dtype), pos_weight=loss.pos_weight, reduction="none"
    )
