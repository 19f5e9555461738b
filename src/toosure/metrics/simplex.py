"""SKCE and KDE-ECE: calibration errors of the whole probability vector, by kernels."""

import torch
from torch import Tensor

from toosure.metrics.confidence import top_label, top_odds
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_distributions,
    as_metric_inputs,
    as_metric_logits,
    at_least_float32,
    check_choice,
    check_finite,
    check_positive,
)

_BLOCK = 2**22  # elements of a block of the N x N kernel
_MAX_MEDIAN_ROWS = 2048
_MIN_LOG = -700.0  # log of the smallest probability that differs from 0


def skce(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    estimator: str = "unbiased",
    bandwidth: float | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the squared kernel calibration error; its root, where positive, is "KCE".

    h_ij = exp(-TV(p_i, p_j) / bandwidth) <e_yi - p_i, e_yj - p_j>, TV half the l1 distance.
    "unbiased": mean over i < j, may be negative; "biased": mean over all i, j; "linear": mean over
    the pairs (0, 1), (2, 3), .., in O(N). Widmann, Lindsten & Zachariah 2019, arXiv:1910.11385.
    Without `bandwidth` it is `median_distance(logits)`: fix it to compare along training.
    Needs all rows; the O(N^2) forms go block by block. Differentiable in `logits`.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> labels = torch.tensor([0, 2, 2, 1])
    >>> [round(float(skce(logits, labels, how)), 6) for how in ("biased", "unbiased", "linear")]
    [0.066595, -0.04921, -0.000466]
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    _check_skce(len(logits), estimator, bandwidth)
    return skce_of_rows(_simplex_rows(logits, probs), labels, estimator, bandwidth)


def _simplex_rows(logits: Tensor, probs: ArrayLike | None) -> Tensor:
    """Return the given probabilities, or the softmax of checked logits, (N, C)."""
    if probs is not None:
        return as_distributions(probs)
    return check_finite(at_least_float32(logits).softmax(1))


def _check_skce(n: int, estimator: str, bandwidth: float | Tensor | None) -> None:
    check_choice("estimator", estimator, ("unbiased", "biased", "linear"))
    if bandwidth is not None:
        check_positive("bandwidth", float(bandwidth))
    if n < 2 and estimator != "biased":
        raise ValueError(f"skce needs at least two rows for estimator={estimator!r}; got 1")


def skce_of_rows(
    probs: Tensor,
    labels: Tensor,
    estimator: str = "unbiased",
    bandwidth: float | Tensor | None = None,
) -> Tensor:
    """Return SKCE of inputs already checked, so that a training loop need not wait.

    Two rows are needed unless the estimator is "biased".
    """
    n = len(probs)
    width = median_of_distances(probs) if bandwidth is None else bandwidth
    residual = -probs.scatter_add(1, labels[:, None], -torch.ones_like(probs[:, :1]))  # e_y - p

    if estimator == "linear":
        even = slice(0, n // 2 * 2, 2)
        odd = slice(1, None, 2)
        distance = (probs[even] - probs[odd]).abs().sum(1).double() / 2
        overlap = (residual[even] * residual[odd]).sum(1).double()
        return ((-distance / width).exp() * overlap).mean()

    total = _pair_total(probs, residual, width)
    if estimator == "biased":
        return total / n**2
    # The n pairs of a row with itself are taken out again.
    return (total - residual.square().sum(dtype=torch.float64)) / (n * (n - 1))


def _pair_total(probs: Tensor, residual: Tensor, width: float | Tensor) -> Tensor:
    """Return sum_ij h_ij, i = j included, block by block."""
    rows = max(1, _BLOCK // len(probs))
    total = probs.new_zeros((), dtype=torch.float64)
    for block, block_residual in zip(probs.split(rows), residual.split(rows), strict=True):
        kernel = (-torch.cdist(block, probs, p=1) / (2 * width)).exp()
        total = total + (kernel * (block_residual @ residual.T)).sum(dtype=torch.float64)
    return total


def median_distance(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the median total variation distance between rows, 1 where it is 0.

    Over all pairs of up to 2048 rows; of more, over that many taken at even steps.

    >>> round(float(median_distance(torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 2.0]]))), 6)
    0.380797
    """
    checked = as_metric_logits(logits, probs)
    if labels is not None:
        as_metric_inputs(logits, labels, probs)
    return median_of_distances(_simplex_rows(checked, probs))


@torch.no_grad()
def median_of_distances(probs: Tensor, max_rows: int = _MAX_MEDIAN_ROWS) -> Tensor:
    """Return `median_distance` of probabilities, over at most `max_rows` rows. No value checks."""
    step = -(-len(probs) // max_rows)
    distances = torch.nn.functional.pdist(probs[::step].double(), p=1) / 2
    if len(distances) == 0:
        return torch.ones((), dtype=torch.float64, device=probs.device)
    # torch's quantile takes up to 2^24 numbers.
    median = distances.quantile(0.5) if len(distances) < 2**24 else distances.median()
    return torch.where(median > 0, median, 1.0)


def kde_ece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bandwidth: float = 0.01,
    form: str = "top",
    norm: int = 1,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the calibration error with E[y | p] estimated by kernels, leaving out the row itself.

    1/N sum_j ||q_j - p_j||_norm^norm with q_j = sum_{i != j} k(p_j; p_i) y_i / sum_{i != j} k and k
    the Dirichlet density at p_j with parameters p_i / bandwidth + 1. form "top": confidence and
    hits, a Beta kernel; "canonical": the whole vector. Popordanoska, Sayer & Blaschko 2022,
    arXiv:2210.07810. Needs all rows, in O(N^2), block by block. Differentiable in `logits`.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(kde_ece(logits, torch.tensor([0, 2, 2, 1]), bandwidth=0.5)), 4)
    0.1985
    """
    check_choice("form", form, ("top", "canonical"))
    logits, labels = as_metric_inputs(logits, labels, probs)
    if form == "top" and probs is not None:
        confidence, correct = top_label(probs=probs, labels=labels)
        return kde_ece_from_confidence(confidence, correct, bandwidth, norm)
    if form == "top":
        odds, correct = top_odds(logits, labels)
        both = torch.stack([odds, -odds], 1)  # log c and log(1 - c), also where c is rounded to 1
        return _top_kde_ece(torch.nn.functional.logsigmoid(both), correct, bandwidth, norm)

    log_probs = logits.double().log_softmax(1)
    check_finite(log_probs.amax(1))
    log_probs = log_probs.clamp(min=_MIN_LOG)
    targets: Tensor = torch.nn.functional.one_hot(labels, logits.shape[1]).double()
    frequencies = _leave_one_out_mean(log_probs, targets, bandwidth)
    return (frequencies - log_probs.exp()).abs().pow(norm).sum(1).mean()


def kde_ece_from_confidence(
    confidence: ArrayLike, correct: ArrayLike, bandwidth: float = 0.01, norm: int = 1
) -> Tensor:
    """Return the Beta-kernel error of confidences and hits; see `kde_ece`."""
    confidence, correct = as_confidence(confidence, correct)
    top = confidence.double()
    both = torch.stack([top, 1 - top], 1)  # (N, 2)
    zero = both <= 0
    log_probs = torch.where(zero, _MIN_LOG, torch.where(zero, 1.0, both).log())
    return _top_kde_ece(log_probs, correct, bandwidth, norm)


def _top_kde_ece(log_probs: Tensor, correct: Tensor, bandwidth: float, norm: int) -> Tensor:
    """Return the Beta-kernel error from log c and log(1 - c), (N, 2)."""
    log_probs = log_probs.clamp(min=_MIN_LOG)
    accuracy = _leave_one_out_mean(log_probs, correct.double()[:, None], bandwidth)
    return (accuracy[:, 0] - log_probs[:, 0].exp()).abs().pow(norm).mean()


def _leave_one_out_mean(log_probs: Tensor, targets: Tensor, bandwidth: float) -> Tensor:
    """Return sum_{i != j} k(p_j; p_i) y_i / sum_{i != j} k(p_j; p_i) for each row j, (N, T)."""
    n = len(log_probs)
    if n < 2:
        raise ValueError(f"kde_ece leaves each row out and needs at least two; got {n}")
    check_positive("bandwidth", bandwidth)
    alpha = log_probs.exp() / bandwidth + 1
    log_norm = torch.lgamma(alpha).sum(1) - torch.lgamma(alpha.sum(1))  # (N,)

    means = []
    rows = max(1, _BLOCK // n)
    for start in range(0, n, rows):
        exponent = log_probs[start : start + rows] @ (alpha - 1).T - log_norm  # (rows, N)
        own = torch.arange(len(exponent), device=exponent.device)
        itself = torch.zeros_like(exponent, dtype=torch.bool)
        itself[own, own + start] = True
        weights = exponent.masked_fill(itself, -torch.inf).softmax(1)
        means.append(weights @ targets)
    return torch.cat(means)
