"""Checks of what a user passes in: logits, labels, confidences and options.

Each check is made once, and its error says what came and what to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.label_hints import one_column_hint, shape_hint, type_hint

# Numbers in any form that torch.as_tensor takes; the shape is checked, not typed.
ArrayLike = Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]

SUM_TOLERANCE = 1e-3  # how far a row of probabilities may sum from 1: float16, four printed digits

# Whether the logits of metrics called now were looked at before; see `known_logits`.
_logits_are_known: ContextVar[bool] = ContextVar("logits_are_known", default=False)


def as_logits(logits: ArrayLike, name: str = "logits") -> Tensor:
    """Return `logits` as a floating tensor of shape (N, C), or raise with what came instead."""
    logits = torch.as_tensor(logits)
    if logits.ndim != 2:
        raise ValueError(f"{name} must have shape (N, C); got {tuple(logits.shape)}")
    if not logits.is_floating_point():
        raise ValueError(f"{name} must be floating point; got {logits.dtype}: call .float()")
    if logits.shape[0] == 0 or logits.shape[1] == 0:
        raise ValueError(f"{name} are empty: got shape {tuple(logits.shape)}")
    return logits


def as_labels(labels: ArrayLike, n: int, classes: int, *, outputs: Tensor | None = None) -> Tensor:
    """Return `labels` as int64 of shape (n,) in [0, classes), or raise with what came instead.

    `outputs` (n, classes), where given, tell what a single column is.
    """
    labels = torch.as_tensor(labels)
    if labels.shape != (n,):
        raise ValueError(
            f"labels must have shape ({n},) to match logits; got {tuple(labels.shape)}"
            + shape_hint(labels, n, classes)
        )

    requirement = f"labels must be integers in [0, {classes})"
    if classes == 1 and outputs is not None:
        requirement += f" ({one_column_hint(outputs)})"
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{requirement}; got {type_hint(labels, classes)}")

    labels = labels.long()
    low, high = torch.stack(torch.aminmax(labels)).tolist()  # one wait for the device, not two
    if low < 0 or high >= classes:
        raise ValueError(f"{requirement}; got {low} to {high}")
    return labels


def as_pair(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """Check `(logits, labels)` together; labels follow the logits to their device."""
    logits = as_logits(logits)
    labels = as_labels(labels, *logits.shape, outputs=logits)
    return logits, labels.to(logits.device)


def as_metric_inputs(
    logits: ArrayLike | None, labels: ArrayLike | None, probs: ArrayLike | None = None
) -> tuple[Tensor, Tensor]:
    """Check what a public metric got; probabilities become their logarithm, in float64."""
    checked = as_metric_logits(logits, probs)
    if labels is None:
        raise ValueError("labels are missing: give the true class of each row, integers (N,)")
    return checked, as_labels(labels, *checked.shape, outputs=checked).to(checked.device)


def as_metric_logits(logits: ArrayLike | None, probs: ArrayLike | None = None) -> Tensor:
    """Check the outputs that a public metric got; see `as_metric_inputs`."""
    if (logits is None) == (probs is None):
        came = "neither" if logits is None else "both"
        raise ValueError(f"give logits, or probabilities as probs=...; got {came}")
    if probs is not None:
        return log_of(as_distributions(probs))

    assert logits is not None
    checked = as_logits(logits)
    if not _logits_are_known.get() and are_probabilities(checked):
        raise ValueError(LOGITS_ARE_PROBABILITIES)
    return checked


LOGITS_ARE_PROBABILITIES = (
    "logits are probabilities (every row lies in [0, 1] and sums to 1): pass them as probs=...; "
    "if they are logits that only look so, add 1 to all of them, which changes no metric"
)


@contextmanager
def known_logits() -> Iterator[None]:
    """Call metrics inside without a look at whether their logits are probabilities.

    For logits that were looked at before: the same again, resampled, scaled, or of a later batch.
    """
    token = _logits_are_known.set(True)
    try:
        yield
    finally:
        _logits_are_known.reset(token)


def as_distributions(probs: ArrayLike) -> Tensor:
    """Return probabilities (N, C), in at least float32, or raise with what came instead."""
    probs = as_logits(probs, "probs")
    if (problem := distribution_problem(probs)) is not None:
        raise ValueError(
            "probs must be rows of numbers in [0, 1] that sum to 1, to within "
            f"{sum_tolerance(probs.dtype):.2g}; {problem}{probs_hint(probs)}"
        )
    return at_least_float32(probs)


def probs_hint(values: Tensor) -> str:
    """Say what rows that are no probabilities are, where their values tell; else nothing."""
    low, high = torch.stack(torch.aminmax(values)).tolist()
    if values.shape[1] == 1 and low >= 0 and high <= 1:
        return ": one column is one class; of two classes give both columns, 1 - p and p"
    if high <= 0 and distribution_problem(values.double().exp()) is None:
        return ": these are log-probabilities, which are logits: give them as logits"
    if low >= 0 and distribution_problem(values.double() / 100) is None:
        return ": these are percentages; divide them by 100"
    return ""


def log_of(probs: Tensor) -> Tensor:
    """Return log p in float64; the gradient is 0, not NaN, where p is 0."""
    positive = probs > 0
    logs = torch.where(positive, probs.double(), 1.0).log()
    return torch.where(positive, logs, -torch.inf)


def as_probabilities(probs: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """Check `(probs, labels)`: floats in [0, 1], of shape (N, C) and at least float32."""
    probs = as_logits(probs, "probabilities")
    labels = as_labels(labels, *probs.shape, outputs=probs)
    check_unit_interval(probs, "probabilities")
    return at_least_float32(probs), labels.to(probs.device)


def as_confidence(
    confidence: ArrayLike, correct: ArrayLike, soft: bool = False
) -> tuple[Tensor, Tensor]:
    """Check `(confidence, correct)`: floats in [0, 1] of at least float32, and booleans.

    With `soft`, `correct` may also be floats in [0, 1].
    """
    confidence = torch.as_tensor(confidence)
    correct = torch.as_tensor(correct)
    if confidence.ndim != 1 or len(confidence) == 0:
        raise ValueError(f"confidence must have shape (N,), N > 0; got {tuple(confidence.shape)}")
    if not confidence.is_floating_point():
        raise ValueError(f"confidence must be floating point; got {confidence.dtype}")
    if correct.shape != confidence.shape:
        raise ValueError(
            f"correct must have shape {tuple(confidence.shape)} to match confidence; "
            f"got {tuple(correct.shape)}"
        )

    check_unit_interval(confidence, "confidence")
    if soft and correct.is_floating_point():
        check_unit_interval(correct, "correct")
    elif correct.dtype != torch.bool:
        if not ((correct == 0) | (correct == 1)).all():
            raise ValueError("correct must be 0 or 1 (was the prediction right?); got other values")
        correct = correct.bool()

    return at_least_float32(confidence).contiguous(), correct.to(confidence.device)


def at_least_float32(values: Tensor) -> Tensor:
    """Return `values` unchanged when float32 or float64, else as float32."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def check_finite(values: Tensor, name: str = "logits") -> Tensor:
    """Raise if a per-row reduction of `name` is NaN or infinite, else return `values`.

    Give it what you reduce anyway (a logsumexp is NaN or +inf exactly when its row holds one),
    so that the check costs no extra pass over (N, C).
    """
    # The sum is one cheap number and finite almost always; only if not, look at each value.
    if values.detach().sum().isfinite():
        return values

    bad = ~torch.isfinite(values)
    if bad.any():
        row = int(bad.reshape(bad.shape[0], -1).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite; row {row} of {len(bad)} holds NaN or infinity")
    return values


def check_unit_interval(values: Tensor, name: str) -> None:
    """Raise unless all values lie in [0, 1]; one wait for the device."""
    low, high = torch.stack(torch.aminmax(values.detach())).tolist()  # both NaN if one value is
    if not (low >= 0 and high <= 1):
        check_finite(values, name)
        raise ValueError(f"{name} must lie in [0, 1]; got {low:g} to {high:g}")


def distribution_problem(values: Tensor) -> str | None:
    """Describe the first row that is no probability distribution; None if all rows are.

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
    """Return whether every row (N, C) lies in [0, 1] and sums to 1; the first one mostly tells.

    Zero logits sum to 0, log-probabilities to less. One column is a probability of 1 either way.

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


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless the keyword `name` is one of its `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_count(name: str, value: object) -> None:
    """Raise unless the keyword `name` is a positive integer, numpy's included."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}")


def check_bins(bins: int) -> None:
    """Raise unless `bins` is a positive integer."""
    check_count("bins", bins)


def check_positive(name: str, value: float) -> None:
    """Raise unless the keyword `name` is a number above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be positive; got {value}")


def check_level(level: float) -> None:
    """Raise unless `level`, of an interval, lies between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level}")


@contextmanager
def row_numbers_of_all(logits: Tensor) -> Iterator[None]:
    """Number the rows of all `logits` in errors that are raised about one chunk of them."""
    try:
        yield
    except ValueError:
        check_finite(logits.detach().amax(1))
        raise
