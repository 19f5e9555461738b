"""Labels that may count from 1 though they were read as counting from 0."""

from collections.abc import Sequence

import numpy as np

from toosure.predictions.labels import classes_option, numbered_otherwise, spelled_labels
from toosure.predictions.numbered_columns import are_whole
from toosure.predictions.predictions import Predictions

SURE = 3.0  # standard errors of the difference in hits


def one_based_doubt(predictions: Predictions) -> str:
    """Say that labels fit better when each is lowered by 1; "" if they do not, or 0 occurs.

    Labels 1 .. C are refused, but if the last class is in no row, all of 1 .. C - 1 could count
    from 0. Whether they do, the predictions tell: of the rows that are right in just one of the
    two readings, by far the most must be right in the lowered one.

    >>> from toosure.predictions import from_probs
    >>> rows = from_probs([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]] * 20, [1, 2] * 20)
    >>> one_based_doubt(rows)
    'one lower, labels would be right in 100.0 instead of 0.0 % of rows: perhaps they count from 1'
    """
    labels = predictions.labels
    if labels is None or predictions.logits is None or not len(labels):
        return ""
    if int(labels.min()) < 1 or int(labels.min()) == int(labels.max()):
        return ""
    outputs = predictions.logits if predictions.probs is None else predictions.probs
    lowered = int((outputs.argmax(1) == labels - 1).sum())
    as_read = int(predictions.correct.sum())
    if lowered - as_read <= SURE * np.sqrt(lowered + as_read):
        return ""
    shares = [f"{100 * hits / predictions.n:.1f}" for hits in (lowered, as_read)]
    return (
        f"one lower, labels would be right in {' instead of '.join(shares)} % of rows: perhaps "
        "they count from 1"
    )


def one_based_note(predictions: Predictions, labels: np.ndarray, names: Sequence[str]) -> str:
    """Return the doubt about whole numbers that were read as counting from 0; "" if none.

    `labels` are as they came, `names` those of the classes that they were compared with.
    """
    if numbered_otherwise(names) or not (doubt := one_based_doubt(predictions)):
        return ""
    if not are_whole(spelled_labels(labels)):
        return ""
    assert predictions.classes is not None
    counted = [str(k) for k in range(1, predictions.classes + 1)]
    return f"no label is 0: {doubt} ({classes_option(counted)})"
