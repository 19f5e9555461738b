"""Labels with probability 0, for which the NLL is infinite."""

import torch

from toosure.predictions import Predictions
from toosure.verdicts import plural


def labels_at_zero(predictions: Predictions) -> int:
    """Return how many labels have probability 0.

    >>> from toosure.predictions import from_probs
    >>> labels_at_zero(from_probs([[1.0, 0.0], [0.5, 0.5]], [1, 1]))
    1
    """
    if predictions.logits is None or predictions.labels is None:
        return 0
    own = predictions.logits.gather(1, predictions.labels[:, None])
    return int((own == -torch.inf).sum())


def counted_zeros(count: int) -> str:
    """Say how many labels have probability 0.

    >>> counted_zeros(1), counted_zeros(1200)
    ('1 label has probability 0', '1,200 labels have probability 0')
    """
    return f"{count:,} {plural(count, 'label')} {'has' if count == 1 else 'have'} probability 0"
