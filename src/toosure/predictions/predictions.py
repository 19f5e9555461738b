"""Predictions and truth of a classifier: logits, probabilities or confidences, checked once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.confidence import top_label
from toosure.metrics.conversion import (
    LABELS_ARE_NUMBERS,
    bfloat16_hint,
    holds_text,
    tensor_of_array,
)
from toosure.metrics.distributions import are_probabilities
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_distributions,
    as_metric_inputs,
    as_pair,
    check_one_column,
)
from toosure.predictions.layout import Layout

Kind = Literal["logits", "probs", "confidence"]


@dataclass(frozen=True)
class Predictions:
    """What a classifier predicted and what was true.

    Probabilities that came are in `probs`, and their logarithm in `logits`.
    """

    kind: Kind
    confidence: Tensor  # (N,) of the predicted class, in the precision that came
    correct: Tensor  # (N,) bool
    logits: Tensor | None = None  # (N, C); None if only confidences came
    labels: Tensor | None = None  # (N,) int64
    names: tuple[str, ...] = ()  # of the C classes
    source: str = ""
    probs: Tensor | None = None  # (N, C) as they came, where probabilities came
    binary: bool = False  # one output per example came, or P(class 1) is to be judged: columns 1
    groups: Tensor | None = None  # (N,) int64, the sequence or image of each row, 0 .. G - 1
    group_name: str = "group"  # what the groups are: "sequence", "image"
    note: str = ""  # what a reader guessed about a file, in one line
    column: str = ""  # of a table that held one score per row: its name
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # other columns, (N,) each
    layout: Layout | None = None  # of unlabelled tokens or pixels, whose `extras` are as they came

    @property
    def n(self) -> int:
        return len(self.confidence)

    @property
    def classes(self) -> int | None:
        return None if self.logits is None else self.logits.shape[1]


def from_logits(logits: ArrayLike, labels: ArrayLike, *, kind_given: bool = False) -> Predictions:
    """Take `logits (N, C)` and integer `labels (N,)`.

    One logit per example, (N,) or (N, 1), is a binary classifier's, with labels 0 and 1; where all
    lie in [0, 1] they are refused as probabilities, unless `kind_given` says that the user
    called them logits.

    >>> from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 0]).correct.tolist()
    [True, False]
    """
    given = as_tensor(logits, "logits")
    logits, labels = as_pair(given, as_tensor(labels, "labels"))
    if not kind_given:
        check_one_column(given)

    if are_probabilities(logits):
        raise ValueError(
            "logits are probabilities (every row lies in [0, 1] and sums to 1): save or read them "
            "as probs; logits that only look so are saved with 1 added to all, to the same effect"
        )
    confidence, correct = top_label(logits, labels)
    binary = is_one_column(given)
    return Predictions("logits", confidence, correct, logits, labels, binary=binary)


def from_probs(probs: ArrayLike, labels: ArrayLike) -> Predictions:
    """Take `probs (N, C)`, rows that sum to 1, and integer `labels (N,)`.

    One probability per example, (N,) or (N, 1), is P(class 1), with labels 0 and 1.

    >>> from_probs([[0.9, 0.1], [0.0, 1.0]], [0, 1]).confidence.tolist()
    [0.9, 1.0]
    """
    given = as_tensor(probs, "probs")
    _, labels = as_metric_inputs(None, as_tensor(labels, "labels"), given)
    probs = as_distributions(given)

    # A probability may be rounded to just above 1; the logits keep it unchanged.
    confidence, predicted = probs.max(1)
    return Predictions(
        kind="probs",
        confidence=confidence.clamp(max=1),
        correct=predicted == labels,
        logits=probs.double().log(),
        labels=labels,
        probs=probs.clamp(max=1),
        binary=is_one_column(given),
    )


def from_confidence(confidence: ArrayLike, correct: ArrayLike) -> Predictions:
    """Take the `confidence (N,)` of each prediction and whether it was `correct (N,)`.

    >>> from_confidence([0.9, 0.6], [True, False]).n
    2
    """
    confidence, correct = as_confidence(
        as_tensor(confidence, "confidence"), as_tensor(correct, "correct")
    )
    return Predictions("confidence", confidence, correct)


FROM_ARRAYS: dict[Kind, Callable[[Any, Any], Predictions]] = {
    "logits": partial(from_logits, kind_given=True),
    "probs": from_probs,
    "confidence": from_confidence,
}


def as_tensor(values: object, name: str) -> Tensor:
    """Turn an array of numbers into a tensor on the CPU, unsigned integers into int64."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise ValueError(f"{name} must be dense; got {values.layout}: call .to_dense()")
        if values.is_complex():
            raise ValueError(f"{name} must be numbers; got {values.dtype}")
        tensor = values.detach().cpu()
        is_float8 = tensor.is_floating_point() and tensor.itemsize == 1  # only to keep, not to add
        return tensor.float() if is_float8 else tensor

    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths") from error
    if holds_text(array):
        raise ValueError(f"{name} must be numbers; got text: {LABELS_ARE_NUMBERS}")
    if array.dtype.kind not in "bifu":
        raise ValueError(f"{name} must be numbers; got {array.dtype}{bfloat16_hint(array)}")

    if array.dtype.kind == "u":
        array = array.astype(np.int64)
    return tensor_of_array(np.require(array, requirements="C"))


def as_array(values: Any, name: str) -> np.ndarray:
    """Return an array of NumPy, which has no bfloat16."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    tensor = as_tensor(values, name)
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def renumbered(groups: Tensor | None) -> Tensor | None:
    """Number groups from 0 without gaps: one that has no row would be resampled all the same."""
    return None if groups is None else groups.unique(return_inverse=True)[1]


def take_rows(predictions: Predictions, rows: np.ndarray) -> Predictions:
    """Return the predictions of some rows, by their numbers.

    >>> take_rows(from_confidence([0.9, 0.6], [True, False]), np.array([1])).correct.tolist()
    [False]
    """
    index = torch.from_numpy(rows)

    def chosen(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[index]

    return replace(
        predictions,
        confidence=predictions.confidence[index],
        correct=predictions.correct[index],
        logits=chosen(predictions.logits),
        labels=chosen(predictions.labels),
        probs=chosen(predictions.probs),
        groups=renumbered(chosen(predictions.groups)),
        extras={name: values[rows] for name, values in predictions.extras.items()},
    )
