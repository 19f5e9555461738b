"""Proper scores, accuracy and entropy, and what of a score is calibration and what refinement."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.metrics.confidence import chunked_pairs, probabilities, row_chunks
from toosure.metrics.inputs import as_logits, as_pair, check_finite, naming_rows


def nll(logits: Any, labels: Any) -> Tensor:
    """Return the mean negative log-likelihood, -1/N sum_i log p_i,y (nats).

    >>> round(float(nll(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.241311
    """
    return _mean_over_rows(nll_rows, logits, labels)


def brier(logits: Any, labels: Any) -> Tensor:
    """Return the Brier score summed over classes, 1/N sum_i ||p_i - e_y||^2 (Brier 1950).

    >>> round(float(brier(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.078225
    """
    return _mean_over_rows(brier_rows, logits, labels)


def accuracy(logits: Any, labels: Any) -> Tensor:
    """Return the share of rows whose largest logit is the label's.

    >>> float(accuracy(torch.tensor([[2.0, 0.5], [1.0, 0.0]]), torch.tensor([0, 1])))
    0.5
    """
    return _mean_over_rows(accuracy_rows, logits, labels)


def entropy(logits: Any, labels: Any = None) -> Tensor:
    """Return the mean predictive entropy, -1/N sum_i sum_k p_ik log p_ik (nats); labels unused.

    >>> round(float(entropy(torch.zeros(2, 4))), 6)  # log 4
    1.386294
    """
    logits = as_logits(logits)
    with naming_rows(logits):
        sums = [_double_sum(entropy_rows(rows)) for rows in row_chunks(logits)]
        return check_finite(torch.stack(sums).sum()[None])[0] / len(logits)


def binary_entropy(logits: Any, labels: Any) -> Tensor:
    """Return the mean entropy of the true class against the rest, as CSAM (Tan 2026) plots it.

    H(p_y) = -p_y log p_y - (1 - p_y) log(1 - p_y), with 1 - p_y summed from the other classes.

    >>> round(float(binary_entropy(torch.zeros(2, 4), torch.tensor([0, 1]))), 6)
    0.562335
    """
    return _mean_over_rows(binary_entropy_rows, logits, labels)


def nll_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's -log p_y, shape (N,)."""
    top = logits.detach().amax(1, keepdim=True)  # taken off first: it would round what is left
    total = check_finite((logits - top).exp_().sum(1))
    return total.log() - (logits.gather(1, labels[:, None]) - top).squeeze(1)


def brier_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's ||p - e_y||^2, shape (N,)."""
    probs = probabilities(logits)
    errors = probs.scatter_add(1, labels[:, None], -torch.ones_like(probs[:, :1]))
    return check_finite(errors.square().sum(1))


def accuracy_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return 1 where a row's argmax is its label, shape (N,)."""
    top, predicted = logits.max(1)
    check_finite(top)
    return (predicted == labels).to(logits.dtype)


def entropy_rows(logits: Tensor, labels: Tensor | None = None) -> Tensor:
    """Return each row's predictive entropy, shape (N,)."""
    return torch.special.entr(probabilities(logits)).sum(1)


def binary_entropy_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's entropy of p_y against 1 - p_y, shape (N,)."""
    probs = check_finite(probabilities(logits))
    true = probs.gather(1, labels[:, None]).squeeze(1)
    others = probs.scatter(1, labels[:, None], 0.0).sum(1)
    rarer = torch.minimum(true, others)  # 1 less the other would be rounded
    return torch.special.entr(rarer) - torch.special.xlog1py(1 - rarer, -rarer)


Rows = Callable[[Tensor, Tensor], Tensor]


def _mean_over_rows(rows_of: Rows, logits: Any, labels: Any) -> Tensor:
    logits, labels = as_pair(logits, labels)
    with naming_rows(logits):
        sums = [_double_sum(rows_of(*pair)) for pair in chunked_pairs(logits, labels)]
    return torch.stack(sums).sum() / len(logits)


def _double_sum(values: Tensor) -> Tensor:
    return values.sum(dtype=torch.float64)


class Split(NamedTuple):
    """A score and its two parts, score = calibration + refinement."""

    score: Tensor
    calibration: Tensor  # what the best temperature would take away
    refinement: Tensor  # what remains: the score of the rescaled logits
    temperature: Tensor


def nll_split(logits: Any, labels: Any) -> Split:
    r"""Split the negative log-likelihood into calibration and refinement.

    refinement = min_T NLL(z / T), calibration = NLL(z) - refinement: the part that a one-number
    recalibration removes. Berta, Holzmüller, Jordan & Bach 2025, arXiv:2501.19195.
    A label of probability 0 makes score and refinement infinite, and no temperature helps.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> split = nll_split(logits, torch.tensor([0, 2, 2, 1]))
    >>> round(float(split.temperature), 4), round(float(split.refinement), 6)
    (0.9107, 0.685821)
    """
    return _split(nll_rows, logits, labels)


def brier_split(logits: Any, labels: Any) -> Split:
    """Split the Brier score as `nll_split` does, with the temperature best for Brier.

    >>> split = brier_split(torch.tensor([[5.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 1]))
    >>> round(float(split.refinement), 4), round(float(split.score), 4)
    (0.5, 0.9867)
    """
    return _split(brier_rows, logits, labels)


def _split(rows_of: Rows, logits: Any, labels: Any) -> Split:
    logits, labels = as_pair(logits, labels)
    logits = logits.detach()

    def score(log_scale: float) -> Tensor:
        return _mean_over_rows(lambda z, y: rows_of(z.double() * 2.0**log_scale, y), logits, labels)

    raw = score(0.0)
    if not raw.isfinite():  # a label of probability 0, which no temperature helps
        return Split(raw, torch.zeros_like(raw), raw, torch.ones_like(raw))
    best = _lowest(lambda s: float(score(s)), -10.0, 10.0)
    rescaled = score(best)
    refinement = torch.minimum(raw, rescaled)
    temperature = torch.tensor(2.0**-best, dtype=torch.float64)
    return Split(raw, raw - refinement, refinement, temperature)


def _lowest(score: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function of one number is lowest: a coarse grid, then Brent's method."""
    from scipy.optimize import minimize_scalar

    step = 1.0
    grid = [low + step * k for k in range(round((high - low) / step) + 1)]
    start = min(grid, key=score)
    bounds = (max(low, start - step), min(high, start + step))
    return float(minimize_scalar(score, bounds=bounds, method="bounded", options={"xatol": 1e-7}).x)
