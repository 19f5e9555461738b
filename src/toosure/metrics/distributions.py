"""Rows of probabilities: are rows probabilities, what else may they be, and their logarithm."""

import torch
from torch import Tensor

SUM_TOLERANCE = 1e-3  # how far a row of probabilities may sum from 1: float16, four printed digits


def distribution_problem(values: Tensor) -> str | None:
    """Describe the first row that is not a probability distribution; None if all rows are.

    >>> distribution_problem(torch.tensor([[0.5, 0.5], [0.5, 0.25]]))
    'row 1 sums to 0.75'
    """
    lowest = values.amin(1)
    total = values.sum(1, dtype=torch.float64)
    tolerance = sum_tolerance(values.dtype) + 1e-6  # 0.999 is rounded, and within 0.001
    invalid = ~((lowest >= 0) & ((total - 1).abs() <= tolerance))
    if not invalid.any():
        return None

    row = int(invalid.nonzero()[0])
    if lowest[row] < 0:
        return f"row {row} holds {float(lowest[row]):g}"
    return f"row {row} sums to {float(total[row]):g}"


def sum_tolerance(dtype: torch.dtype) -> float:
    """Return how far a row of probabilities of this type may sum from 1; bfloat16 has 3 digits."""
    return max(SUM_TOLERANCE, torch.finfo(dtype).eps)


def are_probabilities(values: Tensor) -> bool:
    """Return whether every row (N, C) lies in [0, 1] and sums to 1.

    The first row is checked first, since it mostly decides. Zero logits sum to 0, log-probabilities
    to less. A single column is not taken for probabilities.

    >>> [are_probabilities(torch.tensor(rows)) for rows in ([[0.5, 0.5], [0.1, 0.9]], [[0.0, 0.0]])]
    [True, False]
    """
    if values.shape[1] == 1:
        return False
    values = values.detach()
    first = values[0].tolist()  # plain numbers: this is called with every metric
    if min(first) < -SUM_TOLERANCE or max(first) > 1 + SUM_TOLERANCE:
        return False
    return distribution_problem(values[:1].cpu()) is None and distribution_problem(values) is None


def probs_hint(values: Tensor) -> str:
    """Guess from the values what rows that are not probabilities may be; "" without a guess."""
    low, high = torch.stack(torch.aminmax(values)).tolist()
    if values.shape[1] == 1 and low >= 0 and high <= 1:
        return ": one column is one class; of two classes give both columns, 1 - p and p"
    if high <= 0 and distribution_problem(values.double().exp()) is None:
        return ": these are log-probabilities, which are logits: give them as logits"
    if low >= 0 and distribution_problem(values.double() / 100) is None:
        return ": these are percentages; divide them by 100"
    if low >= 0 and high <= 1 and are_rounded(values):
        return ": these look like rounded probabilities; write more digits, or divide by the sum"
    return ""


def are_rounded(values: Tensor) -> bool:
    """Whether all rows sum to 1 up to rounding to two digits."""
    away = (values.sum(1, dtype=torch.float64) - 1).abs().max()
    return bool(away <= 0.005 * values.shape[1] + 1e-6) and float(away) < 0.1


def log_of(probs: Tensor) -> Tensor:
    """Return log p in float64; the gradient is 0, not NaN, where p is 0."""
    positive = probs > 0
    logs = torch.where(positive, probs.double(), 1.0).log()
    return torch.where(positive, logs, -torch.inf)
