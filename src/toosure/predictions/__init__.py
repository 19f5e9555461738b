"""Predictions with their truth: from logits, probabilities or confidences, in memory or in a file.

`predictions` checks arrays, `reading` finds them in a file by name, `file_formats` opens files.
"""

from toosure.predictions.predictions import (
    Kind,
    Predictions,
    from_confidence,
    from_logits,
    from_probs,
)
from toosure.predictions.reading import read_predictions

__all__ = [
    "Kind",
    "Predictions",
    "from_confidence",
    "from_logits",
    "from_probs",
    "read_predictions",
]
