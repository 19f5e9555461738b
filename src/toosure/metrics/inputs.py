"""What may come in: logits and labels, checked once, with errors that say what to do."""

from typing import Any

import torch
from torch import Tensor


def as_logits(logits: Any) -> Tensor:
    """Return `logits` as a floating tensor of shape (N, C), or say what came instead."""
    logits = torch.as_tensor(logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (N, C); got {tuple(logits.shape)}")
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point; got {logits.dtype}: call .float()")
    if logits.shape[0] == 0 or logits.shape[1] == 0:
        raise ValueError(f"logits are empty: got shape {tuple(logits.shape)}")
    return logits


def as_labels(labels: Any, n: int, classes: int) -> Tensor:
    """Return `labels` as int64 of shape (n,) in [0, classes), or say what came instead."""
    labels = torch.as_tensor(labels)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        dtype = str(labels.dtype).removeprefix("torch.")
        raise ValueError(f"labels must be integers in [0, {classes}); got {dtype}: call .long()")
    if labels.shape != (n,):
        raise ValueError(
            f"labels must have shape ({n},) to match logits; got {tuple(labels.shape)}"
        )
    labels = labels.long()
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0 or high >= classes:
        raise ValueError(f"labels must be integers in [0, {classes}); got {low} to {high}")
    return labels


def as_pair(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Check `(logits, labels)` together; labels follow the logits to their device."""
    logits = as_logits(logits)
    labels = as_labels(labels, *logits.shape)
    return logits, labels.to(logits.device)


def check_finite(values: Tensor, name: str = "logits") -> Tensor:
    """Raise if a per-row reduction of `name` is NaN or infinite; pass `values` on.

    Give it what you reduce anyway (a logsumexp is NaN or +inf exactly when its row holds one),
    so that the check costs no extra pass over (N, C).
    """
    bad = ~torch.isfinite(values)
    if bad.any():
        row = int(bad.reshape(bad.shape[0], -1).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite; row {row} of {len(bad)} holds NaN or infinity")
    return values
