"""Classes that no row is labelled with, though the predictions expect some of it."""

import torch

from toosure.evaluate.class_verdict import class_text
from toosure.metrics.confidence import row_chunks
from toosure.predictions import Predictions
from toosure.predictions.one_based import one_based_doubt
from toosure.sentences import listed

CHANCE = 0.01  # of all classes together, by the probabilities
MAX_NAMED = 5


def absence_notes(predictions: Predictions) -> tuple[str, ...]:
    """Name the classes that no row is labelled with, if this is no chance.

    Few rows of many classes leave many classes out. A class is named only if it is predicted, and
    if labels drawn by the probabilities would leave it out in at most `CHANCE` / C of all draws.

    >>> from toosure.predictions import from_probs
    >>> absence_notes(from_probs([[0.7, 0.3], [0.2, 0.8]] * 20, [0, 0] * 20))[0].split(": ")[0]
    'No row is labelled class 1, though its probabilities add up to 22 of 40'
    """
    logits, labels = predictions.logits, predictions.labels
    if logits is None or labels is None:
        return ()
    classes = logits.shape[1]
    outputs = logits if predictions.probs is None else predictions.probs
    seen = torch.bincount(labels, minlength=classes)
    predicted = torch.bincount(outputs.argmax(1), minlength=classes)
    absent = ((seen == 0) & (predicted > 0)).nonzero().flatten()
    if not len(absent):
        return ()

    expected = torch.zeros(len(absent), dtype=torch.float64)
    none_at_all = torch.zeros(len(absent), dtype=torch.float64)  # its logarithm
    for rows in row_chunks(logits):
        probs = rows.double().softmax(1)[:, absent]
        expected += probs.sum(0)
        none_at_all += torch.log1p(-probs.clamp(max=1)).sum(0)
    is_strange = none_at_all.exp() <= CHANCE / classes
    if not bool(is_strange.any()):
        return ()

    order = expected[is_strange].argsort(descending=True)
    numbers = absent[is_strange][order].tolist()
    names = [class_text(predictions.names[k] if predictions.names else str(k)) for k in numbers]
    its, it = ("its", "it") if len(names) == 1 else ("their", "them")
    note = (
        f"No row is labelled {listed(names, MAX_NAMED)}, though {its} probabilities add up to "
        f"{float(expected[is_strange].sum()):,.0f} of {predictions.n:,}: each prediction of {it} "
        "counts as wrong."
    )
    doubt = one_based_doubt(predictions)
    return (note, f"{doubt[0].upper()}{doubt[1:]}.") if doubt else (note,)
