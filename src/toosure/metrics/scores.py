"""NLL, Brier score, accuracy and entropy, and how much of a score is calibration."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.confidence import chunked_pairs, probabilities, row_chunks
from toosure.metrics.inputs import (
    ArrayLike,
    as_metric_inputs,
    as_metric_logits,
    check_finite,
    row_numbers_of_all,
)

_GRID_REACH = 10  # octaves of temperature to either side that are tried first

RowScore = Callable[[Tensor, Tensor], Tensor]  # logits (n, C) and labels (n,) to scores (n,)


def nll(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the mean negative log-likelihood, -1/N sum_i log p_i,y (nats).

    >>> round(float(nll(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.241311
    """
    return _mean_over_rows(nll_rows, *as_metric_inputs(logits, labels, probs))


def brier(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the Brier score summed over classes, 1/N sum_i ||p_i - e_y||^2 (Brier 1950).

    Of two classes it is twice the one-column form, `binary_brier`, that scikit-learn gives.

    >>> round(float(brier(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.078225
    """
    return _mean_over_rows(brier_rows, *as_metric_inputs(logits, labels, probs))


def binary_brier(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the Brier score of P(class 1) alone, 1/N sum_i (p_i - y_i)^2, as scikit-learn does.

    >>> float(binary_brier(probs=torch.tensor([0.5, 1.0]), labels=torch.tensor([1, 1])))
    0.125
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if logits.shape[1] != 2:
        raise ValueError(f"one column stands for two classes; got {logits.shape[1]}: take brier")
    return _mean_over_rows(brier_rows, logits, labels) / 2


def accuracy(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the share of rows with the largest logit at the label.

    >>> float(accuracy(torch.tensor([[2.0, 0.5], [1.0, 0.0]]), torch.tensor([0, 1])))
    0.5
    """
    return _mean_over_rows(accuracy_rows, *as_metric_inputs(logits, labels, probs))


def entropy(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the mean predictive entropy, -1/N sum_i sum_k p_ik log p_ik (nats); labels unused.

    >>> round(float(entropy(torch.zeros(2, 4))), 6)  # log 4
    1.386294
    """
    checked = as_metric_logits(logits, probs)
    with row_numbers_of_all(checked):
        sums = [entropy_rows(rows).sum(dtype=torch.float64) for rows in row_chunks(checked)]
    return torch.stack(sums).sum() / len(checked)


def binary_entropy(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the mean entropy of the true class against the rest, as CSAM (Tan 2026) plots it.

    H(p_y) = -p_y log p_y - (1 - p_y) log(1 - p_y), with 1 - p_y summed from the other classes.

    >>> round(float(binary_entropy(torch.zeros(2, 4), torch.tensor([0, 1]))), 6)
    0.562335
    """
    return _mean_over_rows(binary_entropy_rows, *as_metric_inputs(logits, labels, probs))


def nll_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's -log p_y, shape (N,)."""
    # Subtract the maximum from the label's logit first: added to the sum it would round it.
    top = logits.detach().amax(1, keepdim=True)
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
    entropies: Tensor = torch.special.entr(probabilities(logits))
    return check_finite(entropies.sum(1))


def binary_entropy_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's entropy of p_y against 1 - p_y, shape (N,)."""
    probs = check_finite(probabilities(logits))
    true = probs.gather(1, labels[:, None]).squeeze(1)
    others = probs.scatter(1, labels[:, None], 0.0).sum(1)
    rarer = torch.minimum(true, others)  # 1 minus the more frequent one would be rounded
    entropies: Tensor = torch.special.entr(rarer) - torch.special.xlog1py(1 - rarer, -rarer)
    return entropies


def _mean_over_rows(row_score: RowScore, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of a per-row score, chunk by chunk, summed in float64."""
    with row_numbers_of_all(logits):
        sums = [row_score(*pair).sum(dtype=torch.float64) for pair in chunked_pairs(logits, labels)]
    return torch.stack(sums).sum() / len(logits)


class Split(NamedTuple):
    """A score and its two parts, score = calibration + refinement."""

    score: Tensor
    calibration: Tensor  # what the best temperature would take away
    refinement: Tensor  # what remains: the score of the rescaled logits
    temperature: Tensor


def nll_split(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Split:
    r"""Split the negative log-likelihood into calibration and refinement.

    refinement = min_T NLL(z / T), calibration = NLL(z) - refinement: the part that a one-number
    recalibration removes. Berta, Holzmüller, Jordan & Bach 2025, arXiv:2501.19195.
    A label of probability 0 makes score and refinement infinite, and no temperature helps.
    The temperature has no bounds. Where none is best (all rows right: T to 0; logits that tell
    nothing: T to infinity) it is one from which on the score stays as it is.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> split = nll_split(logits, torch.tensor([0, 2, 2, 1]))
    >>> round(float(split.temperature), 4), round(float(split.refinement), 6)
    (0.9107, 0.685821)
    """
    return _split_by_temperature(nll_rows, *as_metric_inputs(logits, labels, probs))


def brier_split(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Split:
    """Split the Brier score as `nll_split` does, with the temperature best for Brier.

    >>> split = brier_split(torch.tensor([[5.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 1]))
    >>> round(float(split.refinement), 4), round(float(split.score), 4)
    (0.5, 0.9867)
    """
    return _split_by_temperature(brier_rows, *as_metric_inputs(logits, labels, probs))


def _split_by_temperature(row_score: RowScore, logits: Tensor, labels: Tensor) -> Split:
    """Return a score, split by the temperature at which its mean over rows is lowest."""
    rows = logits.detach()

    def score(log_scale: float) -> Tensor:
        """Return the score of the logits times 2^log_scale."""
        scale = 2.0**log_scale
        return _mean_over_rows(lambda z, y: row_score(z.double() * scale, y), rows, labels)

    raw = score(0.0)
    if not raw.isfinite():  # a label of probability 0, which no temperature helps
        return Split(raw, torch.zeros_like(raw), raw, torch.ones_like(raw))

    best = _minimiser(lambda log_scale: float(score(log_scale)), -_log_size(rows))
    refinement = torch.minimum(raw, score(best))
    temperature = torch.exp2(torch.tensor(-best, dtype=torch.float64))  # inf where it overflows
    return Split(raw, raw - refinement, refinement, temperature)


def _minimiser(function: Callable[[float], float], centre: int) -> float:
    """Return where a function of one number is lowest: whole numbers first, then Brent's method.

    The numbers are those about 0 and about `centre`, and go on while the function falls at an end.
    """
    from scipy.optimize import minimize_scalar

    grid = range(min(0, centre) - _GRID_REACH, max(0, centre) + _GRID_REACH + 1)
    values = {x: function(x) for x in grid}
    start = min(values, key=lambda x: values[x])
    if start in (grid[0], grid[-1]):
        outwards = -1 if start == grid[0] else 1
        while (value := function(start + outwards)) < values[start] * (1 - 1e-12):
            start += outwards
            values[start] = value
        if value <= values[start] * (1 + 1e-12):  # it falls no more and does not rise
            return float(start)

    bounds = (start - 1, start + 1)
    result = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return float(result.x)


def _log_size(logits: Tensor) -> int:
    """Return log2 of the median range of a row's logits, rounded; 0 where all are alike."""
    top = logits.amax(1, keepdim=True)
    ranges = (top - torch.where(logits > -torch.inf, logits, top).amin(1, keepdim=True)).double()
    median = float(ranges.median())
    return round(math.log2(median)) if 0 < median < math.inf else 0
