"""How far the gaps of predicted classes lie apart: the number that kept scores hold."""

from torch import Tensor

from toosure import metrics


def class_gap_spread(logits: Tensor, labels: Tensor) -> float:
    """Return the standard deviation of confidence minus accuracy over predicted classes.

    It is above 0 by chance, too: the fewer rows a class has, the more. `metrics.class_gap` is
    without that part, and weighs a class by its rows.

    >>> import torch
    >>> sure, unsure = [4.0, 0.0], [0.0, 0.1]  # 98 % and 52 %
    >>> logits, labels = torch.tensor([sure, sure, unsure, unsure]), torch.tensor([0, 1, 1, 1])
    >>> round(class_gap_spread(logits, labels), 3)  # of +.48 and -.48
    0.479
    """
    confidence, correct = metrics.top_label(logits, labels)
    gaps = metrics.class_gaps(confidence, correct, logits.argmax(1))
    return float(gaps.std(correction=0))
