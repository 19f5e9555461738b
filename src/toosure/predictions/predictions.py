"""Predictions and truth of a classifier: logits, probabilities or confidences, checked once."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import (
    ArrayLike,
    are_probabilities,
    as_confidence,
    as_distributions,
    as_labels,
    as_logits,
)

Kind = Literal["logits", "probs", "confidence"]


@dataclass(frozen=True)
class Predictions:
    """What a classifier predicted and what was true.

    Probabilities that came are in `probs`, and their logarithm in `logits`.
    """

    kind: Kind
    confidence: Tensor  # (N,) of the predicted class, in the precision that came
    correct: Tensor  # (N,) bool
    logits: Tensor | None = None  # (N, C); None where only confidences came
    labels: Tensor | None = None  # (N,) int64
    names: tuple[str, ...] = ()  # of the C classes
    source: str = ""
    probs: Tensor | None = None  # (N, C) as they came, where probabilities came

    @property
    def n(self) -> int:
        return len(self.confidence)

    @property
    def classes(self) -> int | None:
        return None if self.logits is None else self.logits.shape[1]


def from_logits(logits: ArrayLike, labels: ArrayLike) -> Predictions:
    """Take `logits (N, C)` and integer `labels (N,)`.

    >>> from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 0]).correct.tolist()
    [True, False]
    """
    logits = as_logits(as_tensor(logits, "logits"))
    labels = as_labels(as_tensor(labels, "labels"), *logits.shape, outputs=logits)
    if are_probabilities(logits):
        raise ValueError(
            "logits are probabilities (every row lies in [0, 1] and sums to 1): save or read them "
            "as probs; logits that only look so are saved with 1 added to all, to the same effect"
        )
    confidence, correct = top_label(logits, labels)
    return Predictions("logits", confidence, correct, logits, labels)


def from_probs(probs: ArrayLike, labels: ArrayLike) -> Predictions:
    """Take `probs (N, C)`, rows that sum to 1, and integer `labels (N,)`.

    >>> from_probs([[0.9, 0.1], [0.0, 1.0]], [0, 1]).confidence.tolist()
    [0.9, 1.0]
    """
    probs = as_tensor(probs, "probs")
    if probs.ndim == 1:
        raise ValueError(
            "probs must have shape (N, C); got one number per row: of two classes, stack "
            "(1 - p, p); the confidence of the predicted class goes in as confidence, with correct"
        )
    probs = as_distributions(probs)
    labels = as_labels(as_tensor(labels, "labels"), *probs.shape, outputs=probs)

    # A probability may be rounded to just above 1; the logits keep it as it came.
    confidence, predicted = probs.max(1)
    return Predictions(
        kind="probs",
        confidence=confidence.clamp(max=1),
        correct=predicted == labels,
        logits=probs.double().log(),
        labels=labels,
        probs=probs.clamp(max=1),
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


def as_tensor(values: object, name: str) -> Tensor:
    """Turn an array of numbers into a tensor on the CPU, unsigned integers into int64."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise ValueError(f"{name} must be dense; got {values.layout}: call .to_dense()")
        return values.detach().cpu()

    array = np.asarray(values)
    if array.dtype.kind not in "bifu":
        raise ValueError(f"{name} must be numbers; got {array.dtype}")

    # torch has no wide floats, few unsigned integers, and only the byte order of the machine.
    if array.dtype.kind == "u":
        array = array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
