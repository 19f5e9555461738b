"""From logits to what the top-label metrics need: how sure each row is, and whether it is right."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from toosure.metrics.inputs import as_pair, at_least_float32, check_finite

_CHUNK_ON_CPU = 2**18  # elements: 1 MB in float32
_CHUNK_ON_GPU = 2**27


def top_label(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    r"""Return each row's confidence max_k p_k, shape (N,), and whether its argmax is the label.

    One pass over the logits: max_k p_k = 1 / sum_k exp(z_k - z_max), so softmax is never stored.
    Differentiable in `logits`; the dtype is that of the logits, at least float32.

    >>> confidence, correct = top_label(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(confidence), 6), bool(correct)
    (0.785597, True)
    """
    logits, labels = as_pair(logits, labels)
    parts = [_top_of(rows) for rows in row_chunks(logits)]
    confidence = torch.cat([part[0] for part in parts]) if len(parts) > 1 else parts[0][0]
    predicted = torch.cat([part[1] for part in parts]) if len(parts) > 1 else parts[0][1]
    return check_finite(confidence), predicted == labels


def _top_of(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence and argmax of a chunk; NaN where a row holds NaN or +inf, or all -inf."""
    top, predicted = rows.max(1, keepdim=True)
    return (rows - top).exp_().sum(1).reciprocal(), predicted.squeeze(1)


def row_chunks(logits: Tensor) -> Iterator[Tensor]:
    """Yield rows of `logits`, in at least float32, in pieces that stay in a core's cache.

    A graph gains nothing from pieces, and a GPU wants large ones.
    """
    if logits.requires_grad and torch.is_grad_enabled():
        yield at_least_float32(logits)
        return
    elements = _CHUNK_ON_CPU if logits.device.type == "cpu" else _CHUNK_ON_GPU
    for rows in logits.detach().split(max(1, elements // logits.shape[1])):
        yield at_least_float32(rows)


def chunked_pairs(logits: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `(rows, labels)` in the pieces of `row_chunks`."""
    start = 0
    for rows in row_chunks(logits):
        yield rows, labels[start : start + len(rows)]
        start += len(rows)
