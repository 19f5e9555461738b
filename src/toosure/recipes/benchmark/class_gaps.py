"""Standard deviation of confidence minus accuracy over predicted classes."""

from torch import Tensor

from toosure import metrics


def class_gap_spread(logits: Tensor, labels: Tensor) -> float:
    """Return the standard deviation of confidence minus accuracy over predicted classes.

    Chance alone raises it above 0, most where a class has few rows. `metrics.class_gap` subtracts
    what chance adds, and weighs a class by its rows.

    >>> import torch
    >>> sure, unsure = [4.0, 0.0], [0.0, 0.1]  # 98 % and 52 %
    >>> logits, labels = torch.tensor([sure, sure, unsure, unsure]), torch.tensor([0, 1, 1, 1])
    >>> round(class_gap_spread(logits, labels), 3)  # of +.48 and -.48
    0.479
    """
    confidence, correct = metrics.top_label(logits, labels)
    gaps = metrics.class_gaps(confidence, correct, logits.argmax(1))
    return float(gaps.std(correction=0))
