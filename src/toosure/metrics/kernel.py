"""MMCE: maximum mean calibration error by a kernel on confidence, in O(N log N) time."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import ArrayLike, as_confidence, check_choice


def mmce(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    weighted: bool = False,
    normalization: str = "paper",
    bandwidth: float = 0.4,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the maximum mean calibration error of the top label (Kumar et al. 2018), the root.

    MMCE^2 = 1/N^2 sum_ij (a_i - c_i)(a_j - c_j) exp(-|c_i - c_j| / bandwidth).
    `weighted`: sqrt(S_cc/m^2 + S_ww/n^2 - 2 S_cw/(mn)) over m correct and n wrong rows; a side
    without rows adds nothing. `normalization="reference"` repeats the public code, which divides
    by m^2, n^2 and mn (+1e-5) a second time and gives 0 when a side is empty; unweighted, that
    code (in its PyTorch port) takes no root and gives MMCE^2.
    Gradients flow through the confidences; they are 0, not NaN, where the error is 0.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(mmce(logits, torch.tensor([0, 2, 2, 1]))), 6)
    0.222378
    """
    pair = top_label(logits, labels, probs=probs)
    return mmce_of_rows(*pair, weighted, normalization, bandwidth)


def mmce_from_confidence(
    confidence: ArrayLike,
    correct: ArrayLike,
    weighted: bool = False,
    normalization: str = "paper",
    bandwidth: float = 0.4,
) -> Tensor:
    """Return MMCE of confidences and boolean hits; see `mmce`."""
    pair = as_confidence(confidence, correct)
    return mmce_of_rows(*pair, weighted, normalization, bandwidth)


def mmce_of_rows(
    confidence: Tensor,
    correct: Tensor,
    weighted: bool = False,
    normalization: str = "paper",
    bandwidth: float = 0.4,
) -> Tensor:
    """Return MMCE of inputs already checked, so that a training loop need not wait."""
    check_choice("normalization", normalization, ("paper", "reference"))
    check_bandwidth(bandwidth)
    # Without gradients `pair_sum` expects sorted rows; with them it sorts by itself.
    if not (confidence.requires_grad and torch.is_grad_enabled()):
        confidence, correct = sorted_pairs(confidence.detach(), correct)
    confidence = confidence.double()
    correct = correct.double()
    residual = correct - confidence

    if not weighted:
        square = pair_sum(confidence, residual, bandwidth) / len(confidence) ** 2
        return square if normalization == "reference" else root(square)

    hits = correct.sum()
    misses = len(correct) - hits
    if normalization == "paper":
        side = torch.where(correct > 0, hits, misses)  # never 0: it counts the row itself
        return root(pair_sum(confidence, residual / side, bandwidth))
    return _reference_weighted(confidence, correct, residual, hits, misses, bandwidth)


def check_bandwidth(bandwidth: float) -> None:
    """Raise where exp(1 / bandwidth), of the prefix sums, would overflow float64."""
    if not bandwidth >= 0.005:
        raise ValueError(f"bandwidth must be at least 0.005; got {bandwidth}")


def _reference_weighted(
    confidence: Tensor, correct: Tensor, residual: Tensor, m: Tensor, n: Tensor, bandwidth: float
) -> Tensor:
    """Return the weighted MMCE as the public TensorFlow and PyTorch code normalises it.

    It divides the sums over m right and n wrong rows by their number of pairs twice.
    """
    both = pair_sum(confidence, residual, bandwidth)
    right = pair_sum(confidence, residual * correct, bandwidth)
    wrong = pair_sum(confidence, residual * (1 - correct), bandwidth)
    cross = (right + wrong - both) / 2  # S_cw, positive as the sides' residuals differ in sign
    square = (
        right / (m * m).clamp(min=1) / (m * m + 1e-5)
        + wrong / (n * n).clamp(min=1) / (n * n + 1e-5)
        - 2 * cross / (m * n).clamp(min=1) / (m * n + 1e-5)
    )
    return (square + 1e-10).sqrt() * ((m > 0) & (n > 0))


def root(square: Tensor) -> Tensor:
    """Return the square root, with value and gradient 0 where the square is (nearly) 0."""
    positive = square > 1e-26
    return torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0)


def pair_sum(position: Tensor, weight: Tensor, bandwidth: float) -> Tensor:
    """Return sum_ij w_i w_j exp(-|x_i - x_j| / bandwidth), for positions in [0, 1].

    Sorted, exp(-(x_i - x_j) / h) = exp(-x_i / h) exp(x_j / h) splits into prefix sums.
    Differentiable once, in both arguments; the slope at |0| is taken as 0, as torch's abs does. A
    second derivative raises.
    Where no gradient is needed, positions must come in ascending order.
    """
    total: Tensor = _PairSum.apply(position, weight, bandwidth)
    return total


class _PairSumContext(Protocol):
    """What autograd passes to both passes of `_PairSum`."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor, ...]
    bandwidth: float

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _PairSum(torch.autograd.Function):
    """Compute `pair_sum` by prefix sums, forth and back."""

    @staticmethod
    def forward(ctx: _PairSumContext, position: Tensor, weight: Tensor, bandwidth: float) -> Tensor:
        if not any(ctx.needs_input_grad):
            below = _sums_below(position, weight, bandwidth)
            return 2 * weight @ below + weight @ weight

        x, order = position.sort()
        w = weight[order]
        below = _sums_below(x, w, bandwidth)
        above = _sums_below(-x.flip(0), w.flip(0), bandwidth).flip(0)

        ctx.save_for_backward(x, w, below, above, order, position, weight)
        ctx.bandwidth = bandwidth
        return (w * (below + w + above)).sum()

    @staticmethod
    def backward(ctx: _PairSumContext, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w, below, above, order, *inputs = ctx.saved_tensors

        # Rows of equal position are left out: the slope of |x_i - x_j| there is taken as 0.
        tied_below = _tied_weight_below(x, w)
        tied_above = _tied_weight_below(-x.flip(0), w.flip(0)).flip(0)
        slope = (above - tied_above) - (below - tied_below)
        to_position = (2 * grad / ctx.bandwidth) * w * slope
        to_weight = 2 * grad * (below + w + above)

        unsort = torch.empty_like(order)
        unsort[order] = torch.arange(len(order), device=order.device)
        slopes = to_position[unsort], to_weight[unsort]
        if torch.is_grad_enabled():
            slopes = _OnlyOnce.apply(*slopes, grad, *inputs)
        return *slopes, None


class _OnlyOnce(torch.autograd.Function):
    """Pass gradients of `_PairSum` on, and raise if they are differentiated by what made them.

    torch's `once_differentiable` would leave these derivatives out without a word.
    """

    @staticmethod
    def forward(ctx: object, to_position: Tensor, to_weight: Tensor, *made_of: Tensor) -> Any:
        return to_position.clone(), to_weight.clone()

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> Any:
        raise NotImplementedError("MMCE has no second derivative here: take its base loss")


def _sums_below(x: Tensor, w: Tensor, bandwidth: float) -> Tensor:
    """Return sum_{j < i} w_j exp((x_j - x_i) / h) for ascending x."""
    growth = (x / bandwidth).exp_()
    weighted = w * growth
    return (weighted.cumsum(0) - weighted).div_(growth)


def _tied_weight_below(x: Tensor, w: Tensor) -> Tensor:
    """Return the weight of the rows before i that have the same position."""
    index = torch.arange(len(x), device=x.device)
    starts_group = torch.ones_like(index, dtype=torch.bool)
    starts_group[1:] = x[1:] != x[:-1]
    first = torch.where(starts_group, index, 0).cummax(0).values  # of each row's group
    before = w.cumsum(0) - w
    return before - before[first]


def sorted_pairs(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidences in ascending order, with their hits.

    On a CPU the hit is appended as the lowest bit of the confidence's bit pattern (non-negative
    floats sort as integers), so that numpy's vectorised sort of plain integers does the work.
    """
    if confidence.device.type != "cpu":
        confidence, order = confidence.sort()
        return confidence, correct[order]

    integer = torch.int64 if confidence.dtype == torch.float64 else torch.int32
    bits = (confidence + 0.0).view(integer)  # + 0.0 turns -0.0 into 0.0
    keys = torch.from_numpy(np.sort(bits.mul(2).add_(correct).numpy()))
    return (keys >> 1).view(confidence.dtype), keys & 1
