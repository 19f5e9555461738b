"""SECE and DECE, differentiable relatives of ECE: smooth accuracy; soft bins and accuracy."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from toosure.metrics.bandwidth import Bandwidth, batch_bandwidth, check_kernel_bandwidth
from toosure.metrics.confidence import chunked_pairs, top_label
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_metric_inputs,
    check_bins,
    check_choice,
    check_finite,
    check_positive,
)

FORMS = ("points", "grid", "gap", "unbiased")
_BLOCK = 2**22  # elements of a block of the N x N weights
_MAX_DIRECT_ROWS = 4096  # beyond them, sums without gradient are taken on a grid
_NODES_PER_BANDWIDTH = 16  # of that grid
_ORDER = 6  # of the Taylor series about these nodes
_CHUNK = 2**18  # rows of a chunk of DECE's soft bins


def sece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bandwidth: Bandwidth = 0.01,
    form: str = "points",
    bins: int = 15,
    soft_accuracy: bool = False,
    leave_one_out: bool = False,
    detach: bool = False,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the smooth expected calibration error of gamma-net (arXiv:2303.15057).

    form "points": mean_i |pi(c_i) - c_i| with pi(c) = sum_j G(c - c_j) a_j / sum_j G(c - c_j) and
    G a Gaussian of `bandwidth`. form "grid": the same weights at `bins` bin centres, each centre
    counted by its mass. form "gap": mean_i |g(c_i)|, g the same kernel mean of a_j - c_j, whose
    expectation is 0 for calibrated rows at any bandwidth. form "unbiased": mean_i (a_i - c_i)
    g(c_i) with g of the other rows, the unbiased estimate of the squared error smoothed by the
    kernel (it can be negative).

    `bandwidth="auto"` is `batch_bandwidth` of the rows. `leave_one_out` drops j = i: at bandwidth
    0.01 a small batch sees little but itself and nears mean |a - c|, not ECE. `soft_accuracy` takes
    DECE's soft a_j. `detach` holds the kernel weights and a_j fixed in the gradient. Needs all
    rows, in O(N^2) time with gradients and O(N) without (to 1e-7, see `_sece_by_series`).

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(sece(logits, torch.tensor([0, 2, 2, 1]), bandwidth=0.1)), 6)
    0.310764
    """
    confidence, correct = top_label(logits, labels, probs=probs)
    hits = soft_correct(logits, labels, probs=probs) if soft_accuracy else correct
    return sece_of_rows(confidence, hits, bandwidth, form, bins, leave_one_out, detach)


def sece_from_confidence(
    confidence: ArrayLike,
    correct: ArrayLike,
    bandwidth: Bandwidth = 0.01,
    form: str = "points",
    bins: int = 15,
    leave_one_out: bool = False,
    detach: bool = False,
) -> Tensor:
    """Return SECE of confidences and hits (boolean or soft); see `sece`."""
    confidence, correct = as_confidence(confidence, correct, soft=True)
    return sece_of_rows(confidence, correct, bandwidth, form, bins, leave_one_out, detach)


def sece_of_rows(
    confidence: Tensor,
    correct: Tensor,
    bandwidth: Bandwidth = 0.01,
    form: str = "points",
    bins: int = 15,
    leave_one_out: bool = False,
    detach: bool = False,
) -> Tensor:
    """Return SECE of inputs already checked, so that a training loop need not wait."""
    check_choice("form", form, FORMS)
    check_kernel_bandwidth(bandwidth)
    confidence = confidence.double()
    correct = correct.detach().double() if detach else correct.double()
    width = batch_bandwidth(confidence) if isinstance(bandwidth, str) else bandwidth

    if form == "grid":
        return _sece_at_bin_centres(confidence, correct, width, bins, detach)

    needs_gradient = confidence.requires_grad and torch.is_grad_enabled()
    many = len(confidence) > _MAX_DIRECT_ROWS and not needs_gradient
    if many and form == "points" and not leave_one_out and float(width) >= 1e-3:
        return _sece_by_series(confidence, correct, float(width))

    kernel = _Kernel(confidence, width, leave_one_out or form == "unbiased", detach)
    if form == "points":
        return (kernel.means(correct) - confidence).abs().mean()

    gaps = kernel.means(correct - confidence)
    return gaps.abs().mean() if form == "gap" else ((correct - confidence) * gaps).mean()


@dataclass(frozen=True)
class _Kernel:
    """Gaussian weights between the rows, by their confidence."""

    confidence: Tensor
    bandwidth: float | Tensor
    leave_one_out: bool
    detach: bool

    def means(self, values: Tensor) -> Tensor:
        """Return the weighted mean of `values` around each row, in blocks of rows."""
        n = len(self.confidence)
        rows = max(1, _BLOCK // n)
        blocks = [self._means_of_block(values, s, s + rows) for s in range(0, n, rows)]
        return torch.cat(blocks)

    def _means_of_block(self, values: Tensor, start: int, stop: int) -> Tensor:
        """Return `means` around the rows from `start` to `stop`."""
        centres = self.confidence[start:stop]
        exponent = -(((centres[:, None] - self.confidence) / self.bandwidth) ** 2) / 2  # (rows, N)
        weights = exponent.exp()
        if self.detach:
            weights = weights.detach()
        if not self.leave_one_out:  # the row's own weight is 1, so no sum vanishes
            return weights @ values / weights.sum(1)

        own = torch.eye(*exponent.shape, dtype=centres.dtype, device=centres.device).roll(start, 1)
        weights = (weights - own).clamp(min=0)
        mass = weights.sum(1)
        means = weights @ values / mass.clamp(min=1e-8)
        # Where no other row is near, take the mean of all.
        return torch.where(mass < 1e-8, values.mean(), means)


def _sece_by_series(confidence: Tensor, correct: Tensor, bandwidth: float) -> Tensor:
    """Return mean |pi(c_i) - c_i| in O(N): a Taylor series about the nodes of a grid.

    With 16 nodes per bandwidth, rows lie within s = 1/32 bandwidth of a node, and
    G(X + s - Y - t) = sum_pq G^(p+q)(X - Y) s^p (-t)^q / (p! q!) errs by
    15 |s + t|^6 / 6! at most, 1e-9.
    """
    place = confidence / bandwidth * _NODES_PER_BANDWIDTH
    node = place.round()
    offset = (place - node) / _NODES_PER_BANDWIDTH
    node = node.long()
    nodes = int(_NODES_PER_BANDWIDTH / bandwidth) + 2

    # Moments of the rows about their node, once with weight 1 and once with their hits.
    powers = [offset**q for q in range(_ORDER)]
    moments = [
        torch.stack([torch.bincount(node, hit * power, minlength=nodes) for power in powers])
        for hit in (torch.ones_like(correct), correct)
    ]
    fields = _convolve_with_gaussian(torch.stack(moments))  # (2, order, nodes)

    terms = [fields[:, p, node] * powers[p] / math.factorial(p) for p in range(_ORDER)]
    mass, hits = torch.stack(terms).sum(0)
    gaps: Tensor = hits / mass - confidence
    return gaps.abs().mean()


def _convolve_with_gaussian(moments: Tensor) -> Tensor:
    """Convolve moments (2, order, nodes) with the derivatives of the Gaussian, out to 9 widths."""
    reach = 9 * _NODES_PER_BANDWIDTH
    u = torch.arange(reach, -reach - 1, -1, dtype=torch.float64, device=moments.device)
    u = u / _NODES_PER_BANDWIDTH

    # Hermite's polynomials by their recurrence: G^(n)(u) = (-1)^n He_n(u) G(u).
    hermite = [torch.ones_like(u), u]
    for n in range(1, 2 * _ORDER - 2):
        hermite.append(u * hermite[n] - n * hermite[n - 1])
    derivatives = [(-1) ** n * he * torch.exp(-(u**2) / 2) for n, he in enumerate(hermite)]

    taps = [
        [derivatives[p + q] * (-1) ** q / math.factorial(q) for q in range(_ORDER)]
        for p in range(_ORDER)
    ]
    weight = torch.stack([torch.stack(row) for row in taps])  # (order, order, taps)
    return torch.nn.functional.conv1d(moments, weight, padding=reach)


def _sece_at_bin_centres(
    confidence: Tensor, correct: Tensor, bandwidth: float | Tensor, bins: int, detach: bool
) -> Tensor:
    """Return SECE with the weights at bin centres, each centre counted by its mass."""
    check_bins(bins)
    centres = (torch.arange(bins, dtype=torch.float64, device=confidence.device) + 0.5) / bins
    exponent = -(((centres[:, None] - confidence) / bandwidth) ** 2) / 2  # (bins, N)
    weights = (exponent - exponent.detach().max()).exp()  # a common factor cancels
    if detach:
        weights = weights.detach()
    return (weights @ (correct - confidence)).abs().sum() / weights.sum()


def dece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    accuracy_slope: float = 100.0,
    bin_temperature: float = 0.01,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the differentiable ECE of meta-calibration (Bohdal et al. 2023, arXiv:2106.09613).

    DECE = 1/N sum_m |sum_i w_im (acc_i - c_i)| with soft bins w_i = softmax_m((m c_i -
    m (m - 1) / (2 bins)) / bin_temperature) and soft accuracy acc_i = relu(2 - R_i), R_i =
    1/2 + sum_j sigmoid(accuracy_slope (p_ij - p_iy)) the soft rank of the label.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(dece(logits, torch.tensor([0, 2, 2, 1]))), 6)
    0.32922
    """
    confidence, _ = top_label(logits, labels, probs=probs)
    hits = soft_correct(logits, labels, accuracy_slope, probs=probs)
    return dece_of_rows(confidence, hits, bins, bin_temperature)


def dece_from_confidence(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, bin_temperature: float = 0.01
) -> Tensor:
    """Return DECE of confidences and hits (boolean or soft); see `dece`."""
    confidence, correct = as_confidence(confidence, correct, soft=True)
    return dece_of_rows(confidence, correct, bins, bin_temperature)


def dece_of_rows(
    confidence: Tensor, correct: Tensor, bins: int = 15, bin_temperature: float = 0.01
) -> Tensor:
    """Return DECE of inputs already checked, so that a training loop need not wait."""
    check_bins(bins)
    check_positive("bin_temperature", bin_temperature)
    m = torch.arange(1, bins + 1, dtype=torch.float64, device=confidence.device)
    gaps = torch.zeros(bins, dtype=torch.float64, device=confidence.device)

    for c, a in zip(confidence.split(_CHUNK), correct.split(_CHUNK), strict=True):
        scores = (m * c.double()[:, None] - m * (m - 1) / (2 * bins)) / bin_temperature
        weights = (scores.softmax(1) + 1e-6) / (1 + (bins + 1) * 1e-6)  # (n, bins)
        gaps = gaps + (a.double() - c.double()) @ weights
    return gaps.abs().sum() / len(confidence)


def soft_correct(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    slope: float = 100.0,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    """Return relu(2 - R_y), the soft accuracy of each row, from the soft rank R_y of its label."""
    logits, labels = as_metric_inputs(logits, labels, probs)
    pairs = chunked_pairs(logits, labels)
    return check_finite(torch.cat([soft_correct_rows(*pair, slope) for pair in pairs]))


def soft_correct_rows(logits: Tensor, labels: Tensor, slope: float = 100.0) -> Tensor:
    """Return `soft_correct` of inputs already checked, so that a training loop need not wait."""
    probs = logits.softmax(1)
    above = slope * (probs - probs.gather(1, labels[:, None])).double()
    return (2 - (0.5 + above.sigmoid().sum(1))).relu()
