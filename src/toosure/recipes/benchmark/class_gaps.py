"""Confidence minus accuracy of single classes, which an error over all rows may average away."""

import torch
from torch import Tensor

from toosure import metrics


def class_gaps(confidence: Tensor, correct: Tensor, predicted: Tensor) -> Tensor:
    """Return confidence minus accuracy of the rows of each class that was predicted.

    >>> confidence, correct = torch.tensor([0.9, 0.9, 0.5]), torch.tensor([True, False, True])
    >>> class_gaps(confidence, correct, torch.tensor([0, 0, 2]))
    tensor([ 0.4000, -0.5000])
    """
    gaps = confidence - correct.to(confidence.dtype)
    return torch.stack([gaps[predicted == k].mean() for k in predicted.unique()])


def class_gap_spread(logits: Tensor, labels: Tensor) -> float:
    """Return the standard deviation of the gaps over predicted classes.

    It is above 0 by chance, too: the fewer rows a class has, the more.

    >>> sure, unsure = [4.0, 0.0], [0.0, 0.1]  # 98 % and 52 %
    >>> logits, labels = torch.tensor([sure, sure, unsure, unsure]), torch.tensor([0, 1, 1, 1])
    >>> round(class_gap_spread(logits, labels), 3)  # of +.48 and -.48
    0.479
    """
    confidence, correct = metrics.top_label(logits, labels)
    gaps = class_gaps(confidence, correct, logits.argmax(1))
    return float(gaps.std(correction=0))
