"""ECE and the other binned calibration errors of the top label.

Where ECE is computed: `ece` takes `top_label` (each example's confidence, and whether it is right)
and calls `ece_of_checked`, as the watch does while a network trains. There `bin_sums` adds the
examples up per bin, and `error_of` turns these sums into one number. MCE, RMSCE and adaptive ECE
differ from it in the norm or in the edges of the bins only.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    check_bins,
    check_choice,
    check_level,
)
from toosure.quantiles import normal_quantile

EDGES = ("right", "left")  # which of its two edges a bin holds
NORMS = (1, 2, math.inf)


class BinSums(NamedTuple):
    """Sums over the examples of each bin; the sums of two sets of examples add up."""

    counts: Tensor  # (..., bins) int64
    correct: Tensor  # (..., bins) int64, hits
    confidence: Tensor  # (..., bins) float64, the sum

    def gaps(self) -> Tensor:
        """Return mean confidence minus accuracy of each bin, 0 where it is empty."""
        return (self.confidence - self.correct) / self.counts.clamp(min=1)

    def shares(self) -> Tensor:
        """Return the share of all rows in each bin."""
        return self.counts.double() / self.counts.sum(-1, keepdim=True)


def bin_sums(confidence: Tensor, correct: Tensor, edges: Tensor, edge: str = "right") -> BinSums:
    """Sum counts, hits and confidences per bin, in int64 and float64."""
    check_choice("edge", edge, EDGES)
    bins = len(edges) - 1

    # In torch, `right` is the side on which a bin is open: the opposite of our `edge`.
    index = torch.bucketize(confidence, edges[1:-1], out_int32=True, right=edge == "left")

    # One bincount gives wrong and right rows of each bin: column 0 and column 1.
    wrong_right = torch.bincount(index * 2 + correct, minlength=2 * bins).view(bins, 2)
    summed = torch.bincount(index, confidence.double(), minlength=bins)
    return BinSums(wrong_right.sum(1), wrong_right[:, 1], summed)


def error_of(sums: BinSums, norm: float) -> Tensor:
    """Return (sum_b share_b |gap_b|^norm)^(1/norm); the largest |gap_b| for norm = inf."""
    check_choice("norm", norm, NORMS)
    if norm == 1:  # the counts cancel
        return (sums.confidence - sums.correct).abs().sum(-1) / sums.counts.sum(-1)

    gaps = sums.gaps().abs()
    if norm == math.inf:
        return gaps.amax(-1)
    return (sums.shares() * gaps**norm).sum(-1) ** (1 / norm)


def equal_width_edges(bins: int, like: Tensor) -> Tensor:
    """Return k / bins for k = 0 .. bins, rounded once to the dtype of `like`.

    Rounding the edge as the confidence was rounded keeps 0.2 in (0, 0.2] in every precision.
    """
    check_bins(bins)
    return (torch.arange(bins + 1, dtype=torch.float64, device=like.device) / bins).to(like.dtype)


def equal_mass_edges(confidence: Tensor, bins: int) -> Tensor:
    """Return edges from order statistics: inner edge k is the ceil(kN/bins)-th lowest confidence.

    With right-closed bins equal confidences always share a bin, whatever the row order.
    """
    check_bins(bins)
    n = len(confidence)
    ranks = [-(-k * n // bins) - 1 for k in range(1, bins)]
    inner = confidence.sort().values[torch.tensor(ranks, dtype=torch.long)]
    return torch.cat([inner.new_zeros(1), inner, inner.new_ones(1)])


def bin_edges(confidence: Tensor, bins: int, adaptive: bool) -> Tensor:
    """Return the edges of equal-mass bins if `adaptive`, else of equal-width bins."""
    if adaptive:
        return equal_mass_edges(confidence, bins)
    return equal_width_edges(bins, confidence)


def ece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the expected calibration error of the top label.

    ECE = (sum_b n_b/N |acc_b - conf_b|^norm)^(1/norm) over equal-width bins (a, b], the first
    closed at 0; `edge="left"` bins [a, b), the last closed at 1. Naeini et al. 2015;
    Guo et al. 2017, arXiv:1706.04599.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> labels = torch.tensor([0, 2, 2, 1])
    >>> round(float(ece(logits, labels)), 6)
    0.329259
    """
    confidence, correct = top_label(logits, labels, probs=probs)
    return ece_of_checked(confidence, correct, bins, edge, norm)


def ece_from_confidence(
    confidence: ArrayLike,
    correct: ArrayLike,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
) -> Tensor:
    """Return the binned calibration error of `(confidence, correct)`; see `ece`.

    >>> confidence, correct = torch.tensor([0.75, 0.75]), torch.tensor([True, False])
    >>> float(ece_from_confidence(confidence, correct))
    0.25
    """
    return ece_of_checked(*as_confidence(confidence, correct), bins, edge, norm)


def ece_of_checked(
    confidence: Tensor, correct: Tensor, bins: int = 15, edge: str = "right", norm: float = 1
) -> Tensor:
    """Return ECE of checked (confidence, correct), such as from `top_label`."""
    edges = equal_width_edges(bins, confidence)
    return error_of(bin_sums(confidence.detach(), correct, edges, edge), norm)


def mce(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the maximum calibration error, max_b |acc_b - conf_b| (Naeini et al. 2015).

    >>> round(float(mce(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.214403
    """
    return ece(logits, labels, bins, edge, math.inf, probs=probs)


def mce_from_confidence(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, edge: str = "right"
) -> Tensor:
    """Return the largest gap of any bin of `(confidence, correct)`; see `mce`."""
    return ece_from_confidence(confidence, correct, bins, edge, math.inf)


def rmsce(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the root mean square calibration error (Hendrycks et al. 2019, arXiv:1812.04606).

    >>> round(float(rmsce(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.214403
    """
    return ece(logits, labels, bins, edge, 2, probs=probs)


def rmsce_from_confidence(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, edge: str = "right"
) -> Tensor:
    """Return the root mean square gap of `(confidence, correct)`; see `rmsce`."""
    return ece_from_confidence(confidence, correct, bins, edge, 2)


def adaptive_ece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    norm: float = 1,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return the calibration error over equal-mass bins (Nguyen & O'Connor 2015).

    Row i, with r_i rows of strictly lower confidence, lies in bin floor(bins * r_i / N): equal
    confidences share a bin, the row order does not matter, fewer rows than bins are fine.

    >>> round(float(adaptive_ece(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))), 6)
    0.214403
    """
    return adaptive_ece_from_confidence(*top_label(logits, labels, probs=probs), bins, norm)


def adaptive_ece_from_confidence(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, norm: float = 1
) -> Tensor:
    """Return the equal-mass calibration error of `(confidence, correct)`; see `adaptive_ece`."""
    confidence, correct = as_confidence(confidence, correct)
    confidence = confidence.detach()
    return error_of(bin_sums(confidence, correct, equal_mass_edges(confidence, bins)), norm)


class Reliability(NamedTuple):
    """The table behind diagrams, ECE and reports: one row per bin; NaN where a bin is empty."""

    edges: Tensor  # (bins + 1,)
    counts: Tensor  # (bins,) int64
    accuracy: Tensor  # (bins,)
    confidence: Tensor  # (bins,) mean confidence
    interval: Tensor  # (bins, 2) Wilson interval of the accuracy


def reliability(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    adaptive: bool = False,
    level: float = 0.95,
    *,
    probs: ArrayLike | None = None,
) -> Reliability:
    """Return edges, counts, accuracy, mean confidence and accuracy interval of each bin.

    The interval is Wilson's (1927) at `level`; `adaptive` takes equal-mass bins.

    >>> table = reliability(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]), bins=2)
    >>> table.counts.tolist(), table.accuracy.tolist()
    ([0, 1], [nan, 1.0])
    """
    confidence, correct = top_label(logits, labels, probs=probs)
    return reliability_from_confidence(confidence, correct, bins, edge, adaptive, level)


def reliability_from_confidence(
    confidence: ArrayLike,
    correct: ArrayLike,
    bins: int = 15,
    edge: str = "right",
    adaptive: bool = False,
    level: float = 0.95,
) -> Reliability:
    """Return the reliability table of `(confidence, correct)`; see `reliability`."""
    confidence, correct = as_confidence(confidence, correct)
    confidence = confidence.detach()
    edges = bin_edges(confidence, bins, adaptive)
    return table_of(bin_sums(confidence, correct, edges, edge), edges, level)


def table_of(sums: BinSums, edges: Tensor, level: float = 0.95) -> Reliability:
    """Return the reliability table of bin sums."""
    counts = sums.counts.double()
    return Reliability(
        edges=edges.double(),
        counts=sums.counts,
        accuracy=sums.correct / counts,
        confidence=sums.confidence / counts,
        interval=wilson_interval(sums.correct.double(), counts, level),
    )


def wilson_interval(hits: Tensor, trials: Tensor, level: float = 0.95) -> Tensor:
    """Return Wilson's score interval of hits / trials, shape (..., 2); NaN for no trials.

    >>> [round(v, 4) for v in wilson_interval(torch.tensor(8.0), torch.tensor(10.0)).tolist()]
    [0.4902, 0.9433]
    """
    check_level(level)
    z = normal_quantile(0.5 + level / 2)
    share = hits / trials
    z2 = z * z / trials

    half = (z * (share * (1 - share) / trials + z2 / (4 * trials)).sqrt()) / (1 + z2)
    centre = (share + z2 / 2) / (1 + z2)
    return torch.stack([(centre - half).clamp(min=0), (centre + half).clamp(max=1)], -1)
