"""Debiased ECE: the binned calibration error less the bias that finite bins add."""

import math

import torch
from torch import Tensor

from toosure.metrics.binned import BinSums, bin_sums, equal_width_edges
from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import ArrayLike, as_confidence, check_choice


def debiased_ece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the calibration error less the bias that noisy bin accuracies add.

    norm 2: sqrt(max(0, sum_b n_b/N [gap_b^2 - acc_b (1 - acc_b) / (n_b - 1)])).
    norm 1: 2 ECE - E[sum_b n_b/N |N(gap_b, acc_b (1 - acc_b) / n_b)|], at least 0, with the
    folded normal's mean in closed form in place of resampling.
    Kumar, Liang & Ma 2019, arXiv:1909.10155. A bin of one row has no estimate of its noise.

    >>> logits = torch.tensor([[2.0, 0.0]]).repeat(10, 1)
    >>> labels = torch.tensor([0] * 8 + [1] * 2)  # confidence 0.88, accuracy 0.8
    >>> round(float(debiased_ece(logits, labels)), 4)
    0.0408
    """
    confidence, correct = top_label(logits, labels, probs=probs)
    edges = equal_width_edges(bins, confidence)
    return debiased_error_of(bin_sums(confidence.detach(), correct, edges, edge), norm)


def debiased_ece_from_confidence(
    confidence: ArrayLike,
    correct: ArrayLike,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
) -> Tensor:
    """Return the debiased calibration error of `(confidence, correct)`; see `debiased_ece`."""
    confidence, correct = as_confidence(confidence, correct)
    edges = equal_width_edges(bins, confidence)
    return debiased_error_of(bin_sums(confidence.detach(), correct, edges, edge), norm)


def debiased_error_of(sums: BinSums, norm: float) -> Tensor:
    """Return the debiased error of bin sums for norm 1 or 2."""
    check_choice("norm", norm, (1, 2))
    gaps = sums.gaps()
    shares = sums.shares()
    counts = sums.counts.double()
    accuracy = sums.correct / counts.clamp(min=1)
    variance = accuracy * (1 - accuracy)  # of one hit

    if norm == 2:
        squares = gaps**2 - variance / (counts - 1).clamp(min=1)
        return (shares * squares).sum(-1).clamp(min=0).sqrt()

    expected = folded_normal_mean(gaps, (variance / counts.clamp(min=1)).sqrt())
    return (shares * (2 * gaps.abs() - expected)).sum(-1).clamp(min=0)


def folded_normal_mean(mean: Tensor, std: Tensor) -> Tensor:
    """Return E|N(mean, std^2)|, which is |mean| where std is 0."""
    ratio = mean / std.clamp(min=1e-300)
    density = std * math.sqrt(2 / math.pi) * torch.exp(-0.5 * ratio**2)
    return density + mean * torch.erf(ratio / math.sqrt(2))
