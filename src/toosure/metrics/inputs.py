"""Checks of what a user passes in: logits, labels, confidences and options.

Each check is made once, and its error says what came and what to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.conversion import to_tensor
from toosure.metrics.distributions import (
    are_probabilities,
    distribution_problem,
    log_of,
    probs_hint,
    sum_tolerance,
)
from toosure.metrics.label_hints import range_hint, shape_hint, type_hint
from toosure.metrics.one_column import (
    LOGITS_MAY_BE_PROBABILITIES,
    columns_of_logits,
    columns_of_probs,
    labels_of_two_classes,
    may_be_probabilities,
)

# Numbers in any form that `to_tensor` takes; the shape is checked, not typed.
ArrayLike = Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]

# Whether the outputs of metrics called now were checked before; see `known_outputs`.
_outputs_are_known: ContextVar[bool] = ContextVar("outputs_are_known", default=False)


def as_logits(logits: ArrayLike, name: str = "logits") -> Tensor:
    """Return `logits` as a floating tensor of shape (N, C), or raise with what came instead."""
    logits = to_tensor(logits)
    if logits.ndim != 2:
        raise ValueError(
            f"{name} must have shape (N, C); got {tuple(logits.shape)}{dimension_hint(logits)}"
        )
    if not logits.is_floating_point():
        raise ValueError(f"{name} must be floating point; got {logits.dtype}: call .float()")
    if logits.shape[0] == 0 or logits.shape[1] == 0:
        raise ValueError(f"{name} are empty: got shape {tuple(logits.shape)}")
    return logits


def dimension_hint(logits: Tensor) -> str:
    """Return what to do with outputs for every token or pixel; "" for other outputs."""
    if logits.ndim < 3:
        return ""
    return ": of tokens (N, T, C) or pixels (N, C, H, W), take toosure.metrics.flatten_positions"


def as_labels(labels: ArrayLike, n: int, classes: int) -> Tensor:
    """Return `labels` as int64 of shape (n,) in [0, classes), or raise with what came instead."""
    labels = to_tensor(labels)
    if labels.shape != (n,):
        raise ValueError(
            f"labels must have shape ({n},) to match logits; got {tuple(labels.shape)}"
            + shape_hint(labels, n, classes)
        )

    requirement = f"labels must be integers in [0, {classes})"
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{requirement}; got {type_hint(labels, classes)}")

    labels = labels.long()
    low, high = torch.stack(torch.aminmax(labels)).tolist()  # one wait for the device, not two
    if low < 0 or high >= classes:
        raise ValueError(f"{requirement}; got {low} to {high}{range_hint(low, high, classes)}")
    return labels


def as_pair(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """Check `(logits, labels)` together; labels follow the logits to their device.

    One logit per example, with 0/1 labels, becomes the two columns of two classes.
    """
    logits = to_tensor(logits)
    if is_one_column(logits):
        truth = labels_of_two_classes(to_tensor(labels), len(logits))
        return columns_of_logits(logits), truth.to(logits.device)

    logits = as_logits(logits)
    return logits, as_labels(labels, *logits.shape).to(logits.device)


def as_metric_inputs(
    logits: ArrayLike | None, labels: ArrayLike | None, probs: ArrayLike | None = None
) -> tuple[Tensor, Tensor]:
    """Check the inputs of a public metric; probabilities become their logarithm, in float64.

    One output per example, with 0/1 labels, becomes the two columns of two classes.
    """
    outputs = one_of(logits, probs)
    if labels is None:
        raise ValueError("labels are missing: give the true class of each row, integers (N,)")

    if is_one_column(outputs):  # check labels first: more than two classes are named then
        truth = labels_of_two_classes(to_tensor(labels), len(outputs))
        return as_metric_logits(logits, probs), truth.to(outputs.device)

    checked = as_metric_logits(logits, probs)
    return checked, as_labels(labels, *checked.shape).to(checked.device)


def one_of(logits: ArrayLike | None, probs: ArrayLike | None) -> Tensor:
    """Return whichever of logits and probabilities was given, as a tensor."""
    if (logits is None) == (probs is None):
        came = "neither" if logits is None else "both"
        raise ValueError(f"give logits, or probabilities as probs=...; got {came}")
    return to_tensor(logits if probs is None else probs)


def as_metric_logits(logits: ArrayLike | None, probs: ArrayLike | None = None) -> Tensor:
    """Check the outputs given to a public metric; see `as_metric_inputs`."""
    outputs = one_of(logits, probs)
    if probs is not None:
        return log_of(as_distributions(outputs))

    if is_one_column(outputs):
        columns = columns_of_logits(outputs)
        if not _outputs_are_known.get():
            check_one_column(outputs)
        return columns

    checked = as_logits(outputs)
    if not _outputs_are_known.get() and are_probabilities(checked):
        raise ValueError(LOGITS_ARE_PROBABILITIES)
    return checked


def check_one_column(logits: ArrayLike | None) -> None:
    """Refuse one logit per example if all lie in [0, 1]: they are probably probabilities."""
    logits = to_tensor(logits) if logits is not None else None
    if is_one_column(logits) and len(logits) and may_be_probabilities(logits):
        raise ValueError(LOGITS_MAY_BE_PROBABILITIES)


LOGITS_ARE_PROBABILITIES = (
    "logits are probabilities (every row lies in [0, 1] and sums to 1): pass them as probs=...; "
    "if they are logits that only look so, add 1 to all of them, which changes no metric"
)


@contextmanager
def known_outputs() -> Iterator[None]:
    """Call metrics inside without a check whether logits, or probs, are probabilities.

    For outputs that were checked before: the same again, resampled, scaled, or of a later batch.
    """
    token = _outputs_are_known.set(True)
    try:
        yield
    finally:
        _outputs_are_known.reset(token)


def known_logits(probs: ArrayLike | None) -> AbstractContextManager[None]:
    """Do as `known_outputs` for logits; check probabilities, if they are given instead."""
    return known_outputs() if probs is None else nullcontext()


def as_distributions(probs: ArrayLike) -> Tensor:
    """Return probabilities (N, C), in at least float32, or raise with what came instead.

    One probability per example, P(class 1), becomes two columns.
    """
    probs = to_tensor(probs)
    if is_one_column(probs):
        return columns_of_probs(probs)

    probs = as_logits(probs, "probs")
    if not _outputs_are_known.get() and (problem := distribution_problem(probs)) is not None:
        raise ValueError(
            "probs must be rows of numbers in [0, 1] that sum to 1, to within "
            f"{sum_tolerance(probs.dtype):.2g}; {problem}{probs_hint(probs)}"
        )
    return at_least_float32(probs)


def as_confidence(
    confidence: ArrayLike, correct: ArrayLike, soft: bool = False
) -> tuple[Tensor, Tensor]:
    """Check `(confidence, correct)`: floats in [0, 1] of at least float32, and booleans.

    With `soft`, `correct` may also be floats in [0, 1].
    """
    confidence = to_tensor(confidence)
    correct = to_tensor(correct)
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

    Pass a reduction that is computed anyway: a logsumexp is NaN or +inf exactly when its row holds
    one. Then the check costs no extra pass over (N, C).
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
