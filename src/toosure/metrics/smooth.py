"""Smooth ECE: the gap smoothed by a reflected Gaussian whose width equals its own answer."""

import math
from typing import Any

import torch
from scipy.optimize import brentq
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import as_confidence

_NARROWEST = 1e-7  # a fixed point below this is called 0
_NARROW = 2e-4
_LARGEST_GRID = 2**22


def smece(logits: Any, labels: Any) -> Tensor:
    r"""Return the smooth ECE of the top label, without bins to choose.

    smECE(h) = integral_0^1 |1/N sum_i (a_i - c_i) K_h(t, c_i)| dt with K_h the Gaussian of width h
    reflected at 0 and 1; the answer is the h with smECE(h) = h. Blasiok & Nakkiran 2023,
    arXiv:2309.12236. Within 1e-6 of the double sum, in O(N) time and memory.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(smece(logits, torch.tensor([0, 2, 2, 1]))), 4)
    0.2112
    """
    return smece_from_confidence(*top_label(logits, labels))


def smece_from_confidence(confidence: Any, correct: Any, bandwidth: float | None = None) -> Tensor:
    """Return smECE of `(confidence, correct)`, at a fixed `bandwidth` where given; see `smece`."""
    confidence, correct = as_confidence(confidence, correct)
    gaps = CosineSeries(confidence.detach(), correct)
    if bandwidth is not None:
        return gaps.smoothed_areas([bandwidth])[0]
    return torch.full_like(gaps.residual[0], _fixed_point(gaps))


def _fixed_point(gaps: "CosineSeries") -> float:
    """Return the h in (0, 1] with area(h) = h. The area falls with h, so there is one."""
    high, halvings = 1.0, 5
    while high > _NARROW:  # from above: a narrow width costs a finer grid
        widths = [high / 2**power for power in range(1, halvings + 1)]
        for width, excess in zip(widths, gaps.excess(widths), strict=True):
            if excess > 0:
                return _between(gaps, width, 2 * width)
        high, halvings = widths[-1], 2
    largest, apart = gaps.unsmoothed()  # so far down, begin from the most the area can be
    if apart > 20 * largest:  # no gaps that could cancel are near each other
        return largest
    high = min(high, largest)
    while high > _NARROWEST and gaps.excess([high / 2])[0] <= 0:
        high /= 2
    return _between(gaps, high / 2, high) if high > _NARROWEST else 0.0


def _between(gaps: "CosineSeries", low: float, high: float) -> float:
    """Return where the excess, above 0 at `low`, crosses it."""

    def excess(width: float) -> float:
        return gaps.excess([width])[0]

    if excess(high) >= 0:  # by rounding, at the largest area
        return high
    return float(brentq(excess, low, high, xtol=1e-9))


def _total_variation(values: Tensor, slopes: Tensor) -> Tensor:
    """Return integral |slope| of a function from values and slopes, times the step, at nodes."""
    left, right = values[..., :-1], values[..., 1:]
    down, up = slopes[..., :-1], slopes[..., 1:]
    crossing = down * up < 0
    s = torch.where(crossing, down / torch.where(crossing, down - up, 1.0), 0.0)
    turn = (
        left * (1 + 2 * s) * (1 - s) ** 2
        + down * s * (1 - s) ** 2
        + right * s**2 * (3 - 2 * s)
        + up * s**2 * (s - 1)
    )  # Hermite's cubic at the zero of the slope; the left value where there is none
    return ((turn - left).abs() + (right - turn).abs()).sum(-1)


class CosineSeries:
    r"""The residuals a_i - c_i as a cosine series on [0, 1], ready to be smoothed at any width.

    The reflected Gaussian is the heat kernel between two walls, so smoothing multiplies the k-th
    coefficient r_k = 1/N sum_i (a_i - c_i) cos(pi k c_i) by exp(-(pi k h)^2 / 2), and the smoothed
    gap is r_0 + 2 sum_k r_k exp(..) cos(pi k t). Modes beyond pi k h = 8 are below 1e-13.

    The sums over rows are taken once on a fine grid: a row lies within d = 1/(2 grid) of a node
    and cos(pi k (node + x)) is expanded in x to third order, which errs by (pi k d)^4 / 24 at
    most. At four nodes a mode, the fewest allowed, that is 1e-3 of the residuals for the highest
    mode, of which the Gaussian leaves 1e-14, and falls with k^4.
    """

    def __init__(self, confidence: Tensor, correct: Tensor) -> None:
        self.confidence = confidence.double()
        self.residual = correct.double() - self.confidence
        self.grid = 0
        self.coefficients = self.confidence  # replaced before use

    def excess(self, widths: list[float]) -> list[float]:
        """Return area(h) - h at every width."""
        found = self.smoothed_areas(widths).tolist()
        return [area - width for area, width in zip(found, widths, strict=True)]

    def smoothed_areas(self, widths: list[float]) -> Tensor:
        """Return integral_0^1 |smoothed gap| dt at every width.

        Between two nodes of one sign it is the difference of the antiderivative, a sine series;
        where the sign changes, the antiderivative at the zero comes from a cubic.
        """
        modes = math.ceil(8 / (math.pi * min(widths)))
        grid = min(_LARGEST_GRID, 2 ** math.ceil(math.log2(8 * modes)))  # 20 nodes a width or more
        if grid > 2 * self.grid:
            self.grid = max(grid // 2, 2**15 if len(self.residual) > 10**5 else 2**11)
            self.coefficients = self._expand(self.grid)
        modes = min(modes, len(self.coefficients) - 1)
        device = self.confidence.device
        k = torch.arange(modes + 1, dtype=torch.float64, device=device) * math.pi
        width = torch.tensor(widths, dtype=torch.float64, device=device)[:, None]
        damped = self.coefficients[: modes + 1] * torch.exp(-0.5 * (width * k) ** 2)  # (W, modes)
        waves = torch.stack([damped + 0j, damped * (-1j / k.clamp(min=1))])
        waves[1, :, 0] = 0
        gap, area = torch.fft.irfft(waves, 2 * grid, norm="forward")[..., : grid + 1]
        nodes = torch.linspace(0, 1, grid + 1, dtype=torch.float64, device=device)
        return _total_variation(area + damped[:, :1] * nodes, gap / grid)

    def unsmoothed(self) -> tuple[float, float]:
        """Return the limit of no smoothing, and the least distance of gaps of opposite sign.

        The area of no smoothing is the gaps of equal confidences, summed; what has one sign adds
        up at any width, so the area stays so while the kernels of opposite gaps do not meet.
        """
        levels, index = self.confidence.unique(return_inverse=True)
        gaps = torch.zeros_like(levels).index_add_(0, index, self.residual)
        levels, gaps = levels[gaps != 0], gaps[gaps != 0]
        opposite = gaps[1:].sign() != gaps[:-1].sign()
        apart = levels.diff()[opposite]
        return float(gaps.abs().sum()) / len(index), float(apart.min()) if len(apart) else math.inf

    def _expand(self, grid: int) -> Tensor:
        """Return r_k for k = 0 .. grid / 4 from moments about the nodes of a grid."""
        node = (self.confidence * grid).round_()
        offset = (self.confidence - node / grid) * math.pi
        node = node.long()
        moments = [self.residual * offset**order for order in range(4)]
        sums = torch.stack([torch.bincount(node, m, minlength=grid + 1) for m in moments])
        k = torch.arange(grid // 4 + 1, dtype=torch.float64, device=offset.device)
        waves = torch.fft.rfft(sums, 2 * grid)[:, : len(k)]  # sum_node s e^(-i pi k node / grid)
        turns = waves[0].real, waves[1].imag, -waves[2].real, -waves[3].imag  # derivatives of cos
        total = sum(turn * k**n / math.factorial(n) for n, turn in enumerate(turns))
        return total / len(self.residual)
