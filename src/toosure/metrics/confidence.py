"""Confidence and correctness of the top label, from logits in one pass, chunk by chunk."""

from collections.abc import Iterator

import torch
from torch import Tensor

from toosure.metrics.inputs import (
    ArrayLike,
    as_distributions,
    as_metric_inputs,
    at_least_float32,
    check_finite,
)

_CHUNK_ON_CPU = 2**18  # elements: 1 MB in float32
_CHUNK_ON_GPU = 2**27
_ABSENT_CLASS = -1e300  # replaces a logit of -inf, which would have a gradient of NaN
_MIN_CLASSES_FOR_SOFTMAX = 64  # from here on torch's softmax is the faster way on a CPU


def top_label(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return each row's confidence max_k p_k, shape (N,), and whether its argmax is the label.

    One pass over the logits, chunk by chunk: the (N, C) probabilities are never stored. Of equal
    largest logits the first is the prediction, as in argmax.
    Differentiable in `logits`; the dtype is the one of the logits, at least float32. Of `probs`,
    the largest one is the confidence.

    >>> confidence, correct = top_label(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(confidence), 6), bool(correct)
    (0.785597, True)
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if probs is not None:
        confidence, predicted = as_distributions(probs).max(1)
        return confidence.clamp(max=1), predicted == labels  # it may be rounded to just above 1

    confidence, correct = top_label_of_checked(logits, labels)
    return check_finite(confidence), correct


def top_label_of_checked(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence and hits of checked logits (N, C) and labels (N,), chunk by chunk.

    The confidence is NaN where a row holds NaN or +inf, or only -inf.
    """
    parts = []
    for rows, targets in chunked_pairs(logits, labels):
        top = rows.amax(1, keepdim=True)
        if rows.shape[1] < _MIN_CLASSES_FOR_SOFTMAX:
            confidence = (rows - top).exp_().sum(1).reciprocal()
        else:
            confidence = rows.softmax(1).amax(1)

        # The plain maximum is several times faster than max with its index, but cannot tell which
        # of equal logits came first. Equal ones have a confidence of at most 1/2: look only there.
        correct = (rows.gather(1, targets[:, None]) == top).squeeze(1)
        possible_ties = (correct & (confidence <= 0.5)).nonzero().squeeze(1)
        if len(possible_ties):
            correct[possible_ties] = rows[possible_ties].argmax(1) == targets[possible_ties]
        parts.append((confidence, correct))

    if len(parts) == 1:
        return parts[0]
    confidences, hits = zip(*parts, strict=True)
    return torch.cat(confidences), torch.cat(hits)


def class_one(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Return P(class 1) of a two-class problem, shape (N,), and whether class 1 is true.

    The pair for any `*_from_confidence` metric: then it compares the probability of class 1 with
    how often class 1 is true, as scikit-learn's `calibration_curve` does. Outputs are one number
    per example, (N,) or (N, 1), or two columns (N, 2).

    >>> p, true = class_one(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
    >>> [round(each, 4) for each in p.tolist()], true.tolist()
    ([0.8808, 0.2689], [True, True])
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if logits.shape[1] != 2:
        raise ValueError(f"class 1 against class 0 needs two classes; got {logits.shape[1]}")
    if probs is not None:
        return as_distributions(probs)[:, 1].clamp(max=1), labels == 1

    rows = at_least_float32(logits)
    return torch.sigmoid(check_finite(rows[:, 1] - rows[:, 0])), labels == 1


def top_odds(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(c / (1 - c)) of each row's confidence c, float64, and whether its argmax is right.

    The odds come from the logsumexp of the other classes. So they still differ where c is rounded
    to 1, in float32 from odds of 2^25 on. They are 1e300 where c is exactly 1.
    Inputs are already checked. Differentiable in `logits`.
    """
    parts = [odds_of_rows(rows) for rows in row_chunks(logits)]
    odds, predicted, top = (torch.cat(part) for part in zip(*parts, strict=True))
    check_finite(top)
    return odds, predicted == labels


def odds_of_rows(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a chunk's log-odds of the largest probability, its class, and the largest logit."""
    top, predicted = rows.max(1)
    finite = rows.double().clamp(min=_ABSENT_CLASS)
    others = finite.scatter(1, predicted[:, None], _ABSENT_CLASS).logsumexp(1)
    return top.double() - others, predicted, top.detach()


def probabilities(rows: Tensor) -> Tensor:
    """Return softmax over classes; torch's own is slow over few classes on a CPU."""
    few_classes = rows.shape[1] < _MIN_CLASSES_FOR_SOFTMAX
    if not few_classes or rows.requires_grad or rows.device.type != "cpu":
        return rows.softmax(1)
    weights = (rows - rows.amax(1, keepdim=True)).exp_()
    return weights.div_(weights.sum(1, keepdim=True))


def row_chunks(logits: Tensor) -> Iterator[Tensor]:
    """Yield rows of `logits`, in at least float32, in chunks that stay in a core's cache.

    With gradients all rows are one chunk, since the graph holds them anyway. On a GPU chunks are
    large.
    """
    if logits.requires_grad and torch.is_grad_enabled():
        yield at_least_float32(logits)
        return

    elements = _CHUNK_ON_CPU if logits.device.type == "cpu" else _CHUNK_ON_GPU
    for rows in logits.detach().split(max(1, elements // logits.shape[1])):
        yield at_least_float32(rows)


def chunked_pairs(logits: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `(rows, labels)` in the chunks of `row_chunks`."""
    start = 0
    for rows in row_chunks(logits):
        yield rows, labels[start : start + len(rows)]
        start += len(rows)
