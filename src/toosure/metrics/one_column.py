"""Checks of one logit or one probability per example, the outputs of a binary classifier."""

import torch
from torch import Tensor

from toosure.binary import binary_labels, is_one_column, two_column_probs, two_columns

ROUNDING = 1e-6  # of probabilities beyond 0 and 1
LOGITS_MAY_BE_PROBABILITIES = (
    "logits, one per example, all lie in [0, 1], as probabilities do: pass probabilities p as "
    "probs=p; if they are logits z, pass probs=torch.sigmoid(z)"
)


def columns_of_logits(logits: Tensor) -> Tensor:
    """Return one logit per example, (N,) or (N, 1), as two columns (N, 2), of floating type."""
    check_numbers(logits, "logits")
    return two_columns(logits)


def columns_of_probs(probs: Tensor) -> Tensor:
    """Return one probability per example, (N,) or (N, 1), as two columns (N, 2)."""
    check_numbers(probs, "probs")
    low, high = torch.stack(torch.aminmax(probs.detach())).tolist()
    if low >= 0 and high <= 1:
        return two_column_probs(probs)
    if low >= -ROUNDING and high <= 1 + ROUNDING:  # a mean in float32, say
        return two_column_probs(probs.clamp(0, 1))

    if not (low > -torch.inf and high < torch.inf):  # also where NaN
        raise ValueError("probs must be finite: one of them is NaN or infinity")
    hint = "these are logits: give them as logits"
    if low >= 0 and high <= 100:
        hint = "these may be percentages (divide them by 100), or logits (give them as logits)"
    raise ValueError(
        f"probs, one per example, are P(class 1) and lie in [0, 1]; got {low:g} to {high:g}: {hint}"
    )


def check_numbers(outputs: Tensor, name: str) -> None:
    """Raise unless outputs, one per example, are floating point and not empty."""
    if not outputs.is_floating_point():
        raise ValueError(f"{name} must be floating point; got {outputs.dtype}: call .float()")
    if len(outputs) == 0:
        raise ValueError(f"{name} are empty: got shape {tuple(outputs.shape)}")


def may_be_probabilities(logits: Tensor) -> bool:
    """Return whether all logits, one per example, lie in [0, 1] and may be probabilities.

    >>> [may_be_probabilities(torch.tensor(z)) for z in ([0.2, 0.9], [0.2, 1.9], [-0.1, 0.5])]
    [True, False, False]
    """
    low, high = torch.stack(torch.aminmax(logits.detach())).tolist()
    return bool(low >= 0 and high <= 1)


def labels_of_two_classes(labels: Tensor, n: int) -> Tensor:
    """Return the 0/1 labels of one output per example as int64 (n,), or raise."""
    try:
        return binary_labels(labels, n)
    except ValueError as error:
        if labels.shape[:1] != (n,) or not is_one_column(labels):
            raise
        raise ValueError(
            f"{error}; of more than two classes give one column per class, (N, C)"
        ) from None
