"""Predictions with their truth: from logits, probabilities or confidences, in memory or in a file.

`predictions` checks arrays; `reading` opens a file (`file_formats`, `csv_files`) and finds scores
and labels in its arrays (`arrays`) or columns (`tables`) by their `usual_names`.
"""

from toosure.predictions.predictions import (
    Kind,
    Predictions,
    from_confidence,
    from_logits,
    from_probs,
    take_rows,
)
from toosure.predictions.reading import from_frame, is_frame, npy_pair, read_predictions

__all__ = [
    "Kind",
    "Predictions",
    "from_confidence",
    "from_frame",
    "from_logits",
    "from_probs",
    "is_frame",
    "npy_pair",
    "read_predictions",
    "take_rows",
]
