"""One row per class of an evaluation: its frequency, its mean probability, its ECE."""

from typing import NamedTuple

import torch

from toosure import metrics
from toosure.metrics.confidence import row_chunks
from toosure.metrics.inputs import known_outputs
from toosure.predictions import Predictions


class ClassRow(NamedTuple):
    """One class: its frequency, its mean probability, and how far the two differ."""

    name: str
    samples: int
    recall: float | None  # None for a class without samples
    frequency: float
    probability: float  # mean p_k over all samples
    ece: float  # against the rest


def class_rows(predictions: Predictions, bins: int, edge: str) -> tuple[ClassRow, ...]:
    """Return one row per class; no rows if there are only confidences."""
    logits = predictions.logits
    labels = predictions.labels
    n = predictions.n
    if logits is None or labels is None:
        return ()
    classes = logits.shape[1]
    names = predictions.names or tuple(map(str, range(classes)))

    probs = predictions.probs
    with known_outputs():
        errors = metrics.classwise_ece(
            logits if probs is None else None, labels, bins, edge, reduction="none", probs=probs
        )

    counts = torch.bincount(labels, minlength=classes)
    hits = torch.bincount(labels[predictions.correct], minlength=classes)
    mass = torch.zeros(classes, dtype=torch.float64)
    for rows in row_chunks(logits):
        mass += rows.softmax(1).sum(0, dtype=torch.float64)

    columns = (counts.tolist(), hits.tolist(), mass.tolist(), errors.tolist())
    return tuple(
        ClassRow(name, count, hit / count if count else None, count / n, total / n, error)
        for name, count, hit, total, error in zip(names, *columns, strict=True)
    )
