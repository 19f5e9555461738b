"""smECE: the gap smoothed by a reflected Gaussian whose width equals its own answer."""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import ArrayLike, as_confidence
from toosure.quantiles import root_of

_MIN_FIXED_POINT = 1e-7  # a fixed point below this is called 0
_MIN_BANDWIDTH = 1e-5  # what the largest grid resolves
_NARROW = 2e-4  # widths below this need a very fine grid
_MAX_GRID = 2**22


def smece(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return the smooth ECE of the top label, without bins to choose.

    smECE(h) = integral_0^1 |1/N sum_i (a_i - c_i) K_h(t, c_i)| dt with K_h the Gaussian of width h
    reflected at 0 and 1; the answer is the h with smECE(h) = h. Blasiok & Nakkiran 2023,
    arXiv:2309.12236. Within 1e-6 of the double sum, in O(N) time and memory.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(float(smece(logits, torch.tensor([0, 2, 2, 1]))), 4)
    0.2112
    """
    return smece_from_confidence(*top_label(logits, labels, probs=probs))


def smece_from_confidence(
    confidence: ArrayLike, correct: ArrayLike, bandwidth: float | None = None
) -> Tensor:
    """Return smECE of `(confidence, correct)`, at a fixed `bandwidth` where given; see `smece`."""
    confidence, correct = as_confidence(confidence, correct)
    gaps = CosineSeries(confidence.detach(), correct)
    if bandwidth is None:
        error = _fixed_point(gaps)
    elif bandwidth >= _MIN_BANDWIDTH:
        error = gaps.smoothed_area(bandwidth)
    else:
        raise ValueError(f"bandwidth must be at least {_MIN_BANDWIDTH:g}; got {bandwidth}")
    return torch.full_like(gaps.residual[0], error)


def _fixed_point(gaps: "CosineSeries") -> float:
    """Return the h in (0, 1] with area(h) = h. The area falls with h, so there is one."""

    @functools.cache
    def excess(width: float) -> float:
        return gaps.smoothed_area(width) - width

    # Halve from above until h / 2 is too small: a narrow width costs a finer grid.
    high = 1.0
    while excess(high / 2) <= 0:
        high /= 2
        if high < _NARROW:
            break

    # The error is very small. The area without smoothing bounds it, and equals it where no gaps
    # of opposite sign are near enough to cancel.
    if high < _NARROW:
        unsmoothed, apart = gaps.unsmoothed()
        if apart > 20 * unsmoothed:
            return unsmoothed
        high = min(high, unsmoothed)
        while high > _MIN_FIXED_POINT and excess(high / 2) <= 0:
            high /= 2

    if high <= _MIN_FIXED_POINT:
        return 0.0
    if excess(high) >= 0:  # by rounding, at the unsmoothed area
        return high
    return root_of(excess, high / 2, high)


class CosineSeries:
    """The residuals a_i - c_i as a cosine series on [0, 1], which can be smoothed at any width.

    The reflected Gaussian is the heat kernel between two walls, so smoothing multiplies the k-th
    coefficient r_k = 1/N sum_i (a_i - c_i) cos(pi k c_i) by exp(-(pi k h)^2 / 2), and the smoothed
    gap is r_0 + 2 sum_k r_k exp(..) cos(pi k t). Modes beyond pi k h = 8 are below 1e-13.

    The sums over rows are taken once on a fine grid: a row lies within d = 1/(2 grid) of a node
    and cos(pi k (node + x)) is expanded in x to third order, which errs by (pi k d)^4 / 24 at
    most. At four nodes per mode, the fewest allowed, that is 1e-3 of the residuals for the highest
    mode, of which the Gaussian leaves 1e-14, and falls with k^4.
    """

    def __init__(self, confidence: Tensor, correct: Tensor) -> None:
        self.confidence = confidence.double()
        self.residual = correct.double() - self.confidence
        self.grid = 0
        self.coefficients = np.empty(0)

    def smoothed_area(self, width: float) -> float:
        """Return integral_0^1 |smoothed gap| dt at one width.

        Between two nodes of one sign it is the difference of the antiderivative, a sine series;
        where the sign changes, the antiderivative at the zero comes from a cubic.
        """
        modes = math.ceil(8 / (math.pi * width))
        grid = min(_MAX_GRID, 2 ** math.ceil(math.log2(8 * modes)))  # 20 nodes per width or more
        if grid > 2 * self.grid:
            self.grid = max(grid // 2, 2**15 if len(self.residual) > 10**5 else 2**11)
            self.coefficients = self._expand(self.grid).cpu().numpy()
        modes = min(modes, len(self.coefficients) - 1)

        k = math.pi * np.arange(modes + 1)
        damped = self.coefficients[: modes + 1] * np.exp(-0.5 * (width * k) ** 2)
        k[0] = np.inf  # the mean is integrated apart

        # The real inverse FFT of both series gives the gap and its antiderivative at the nodes.
        waves = np.stack([damped, -1j * damped / k])
        gap, area = np.fft.irfft(waves, 2 * grid, norm="forward")[:, : grid + 1]
        return _total_variation(area + damped[0] * np.linspace(0, 1, grid + 1), gap / grid)

    def unsmoothed(self) -> tuple[float, float]:
        """Return the area without smoothing, and the least distance of gaps of opposite sign.

        The area is the sum of |gap| over distinct confidences. Gaps of one sign add up at any
        width, so the area stays the same while the kernels of opposite gaps do not meet.
        """
        levels, index = self.confidence.unique(return_inverse=True)
        gaps = torch.zeros_like(levels).index_add_(0, index, self.residual)
        levels = levels[gaps != 0]
        gaps = gaps[gaps != 0]
        area = float(gaps.abs().sum()) / len(index)

        opposite = gaps[1:].sign() != gaps[:-1].sign()
        distances = levels.diff()[opposite]
        return area, float(distances.min()) if len(distances) else math.inf

    def _expand(self, grid: int) -> Tensor:
        """Return r_k for k = 0 .. grid / 4 from moments about the nodes of a grid."""
        node = (self.confidence * grid).round_()
        offset = (self.confidence - node / grid) * math.pi
        node = node.long()

        moments = [self.residual * offset**order for order in range(4)]
        sums = torch.stack([torch.bincount(node, m, minlength=grid + 1) for m in moments])

        k = torch.arange(grid // 4 + 1, dtype=torch.float64, device=offset.device)
        waves = torch.fft.rfft(sums, 2 * grid)[:, : len(k)]  # sum_node s e^(-i pi k node / grid)
        derivatives = waves[0].real, waves[1].imag, -waves[2].real, -waves[3].imag  # of cos
        total = torch.zeros_like(k)
        for n, derivative in enumerate(derivatives):
            total += derivative * k**n / math.factorial(n)
        return total / len(self.residual)


def _total_variation(values: np.ndarray, slopes: np.ndarray) -> float:
    """Return integral |slope| of a function from values and slopes, times the step, at nodes."""
    rise = np.abs(np.diff(values)).sum()

    # Where the slope changes its sign between two nodes, the function turns there: Hermite's
    # cubic at the zero of the slope says how far it went. These places are few.
    (place,) = np.nonzero(slopes[:-1] * slopes[1:] < 0)
    left, right = values[place], values[place + 1]
    down, up = slopes[place], slopes[place + 1]
    s = down / (down - up)
    turn = (
        left * (1 + 2 * s) * (1 - s) ** 2
        + down * s * (1 - s) ** 2
        + right * s**2 * (3 - 2 * s)
        + up * s**2 * (s - 1)
    )
    extra = np.abs(turn - left) + np.abs(right - turn) - np.abs(right - left)
    return float(rise + extra.sum())
