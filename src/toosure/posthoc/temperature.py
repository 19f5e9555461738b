"""Temperature scaling: one number, fitted by Newton's method in about two passes over the rows."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from toosure.metrics import ece, nll
from toosure.metrics.confidence import chunked_pairs
from toosure.metrics.inputs import as_pair, check_choice, known_outputs
from toosure.posthoc.calibrator import Calibrator

ECE_GRID = [k / 10 for k in range(1, 101)]
SUBSAMPLE_ROWS = 2**14  # a fit of this many rows is the start for more
MAX_FLOAT64_NUMBERS = 2**22  # up to this size everything is computed in float64
MAX_LOG_RATIO = math.log(1e4)  # of T to the spread of the logits, either way


class Temperature(Calibrator):
    r"""Divide the logits by one temperature.

    q = softmax(z / T), with T > 0 that minimises the NLL, or the ECE over T = 0.1, 0.2 .. 10 on
    `bins` bins. The NLL is convex in 1/T and has its minimum at a finite T, with two exceptions: if
    every row is right, T stays 1; if the logits are no better than the mean of their row, T is at
    its upper bound. `note` says so. With `criterion="ece"` the NLL may rise.

    Reference: Guo et al. (2017), On calibration of modern neural networks, arXiv 1706.04599

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> calibrator = Temperature().fit(logits, torch.tensor([0, 2, 2, 1]))
    >>> round(float(calibrator.temperature), 6)
    0.9107
    """

    keeps_top = True
    needs_every_class = False
    fitted_names = ("temperature",)
    temperature: Tensor  # ()

    def __init__(self, criterion: Literal["nll", "ece"] = "nll", bins: int = 15) -> None:
        super().__init__()
        check_choice("criterion", criterion, ("nll", "ece"))
        self.criterion = criterion
        self.bins = bins

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Find the temperature."""
        if self.criterion == "ece":
            fit = TemperatureFit(lowest_ece_temperature(logits, labels, self.bins))
        else:
            fit = fit_temperature(logits, labels)
        self.note = fit.note
        self.set_fitted(temperature=logits.new_tensor(fit.temperature, dtype=torch.float64))

    def keep_if_better(self, logits: Tensor, labels: Tensor) -> None:
        """Compare with T = 1 only close to it: elsewhere convexity decides."""
        if self.criterion == "nll" and 0 < abs(math.log(self.temperature)) < 1e-3:
            super().keep_if_better(logits, labels)

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set T = 1."""
        self.set_fitted(temperature=torch.ones((), device=device))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return (z - max z) / T, so that rounding makes no other class the largest."""
        return (logits - logits.amax(1, keepdim=True)) / self.temperature.to(logits.dtype)

    def extra_repr(self) -> str:
        """Show the temperature."""
        return f"{float(self.temperature):.4f}" if self.temperature.numel() else "not fitted"


def lowest_ece_temperature(logits: Tensor, labels: Tensor, bins: int) -> float:
    """Return the first T of 0.1, 0.2 .. 10 with the lowest ECE."""
    if logits.numel() <= MAX_FLOAT64_NUMBERS:
        logits = logits.double()
    with known_outputs():
        return min(ECE_GRID, key=lambda t: float(ece(logits / t, labels, bins)))


class TemperatureFit(NamedTuple):
    """A temperature, and a note if the NLL has no minimum at a finite one."""

    temperature: float
    note: str = ""
    end: Literal["", "right", "wrong"] = ""  # why: every row right; logits no better than chance


def fit_temperature(logits: Tensor, labels: Tensor) -> TemperatureFit:
    """Return the T that minimises the NLL of checked rows.

    Many rows start from the solution of a few, and then need about two passes: from 16,384 of a
    million rows log T is known to a few thousandths, and each Newton step squares the error.
    """
    step = max(1, len(logits) // SUBSAMPLE_ROWS)
    few = logits[::step]
    few_labels = labels[::step]

    # The search is centred at the spread of the logits: the median, as single rows may be far
    # larger, or the mean where most rows are constant.
    spread = few.double().amax(1) - few.double().mean(1)
    scale = float(spread.median()) or float(spread.mean()) or 1.0
    centre = -math.log(scale)

    start = centre
    if len(logits) > 4 * SUBSAMPLE_ROWS:
        start = newton(few, few_labels, start, centre).log_scale
    minimum = newton(logits, labels, start, centre)

    if minimum.end == "right":
        note = "every row is right, so that the NLL falls for ever as T falls: T stays 1"
        return TemperatureFit(1.0, note, minimum.end)
    note = ""
    if minimum.end == "wrong":
        note = (
            "the logits are no better than chance, so that the NLL falls for ever as T rises: "
            "T is at its upper bound"
        )
    return TemperatureFit(math.exp(-minimum.log_scale), note, minimum.end)


class Minimum(NamedTuple):
    """The minimum of the NLL in s = -log T, or the end of the bracket where it still falls."""

    log_scale: float
    end: Literal["", "right", "wrong"] = ""  # every row right; logits no better than chance


def newton(logits: Tensor, labels: Tensor, start: float, centre: float) -> Minimum:
    """Minimise the NLL over s = -log T by Newton's method inside a shrinking bracket.

    Ends when a step is below 1e-4 on many numbers, so that the error after it is about its square,
    and below 1e-8 on few.
    """
    low = centre - MAX_LOG_RATIO
    high = centre + MAX_LOG_RATIO
    tolerance = 1e-8 if logits.numel() <= MAX_FLOAT64_NUMBERS else 1e-4
    s = min(max(start, low), high)
    for _ in range(100):
        slope, variance = nll_derivatives(logits, labels, math.exp(s))
        if variance == 0 and slope <= 0:  # the right class has probability 1 in every row
            return Minimum(s, "right")

        if slope < 0:
            low = s
        else:
            high = s
        step = newton_step(slope, variance)
        if abs(step) < tolerance:
            return Minimum(s + step)
        if high - low < 1e-12:
            break

        # A step out of the bracket goes to its middle instead.
        s = s + step if low < s + step < high else (low + high) / 2

    # Not converged: if one end never moved, the NLL falls towards it without end.
    if s > centre:
        return Minimum(s, "right" if high >= centre + MAX_LOG_RATIO else "")
    return Minimum(s, "wrong" if low <= centre - MAX_LOG_RATIO else "")


def newton_step(slope: float, variance: float) -> float:
    """Return Newton's step in s, or in exp(s) if the NLL is not convex in s."""
    second_derivative = slope + variance
    if second_derivative > 0.1 * variance:
        return max(-2.0, min(2.0, -slope / second_derivative))
    return math.log1p(min(6.0, -slope / variance)) if variance > 0 else 2.0


def nll_derivatives(logits: Tensor, labels: Tensor, scale: float) -> tuple[float, float]:
    """Return the NLL's slope in s = log scale, and the variance term of its second derivative.

    With x = scale * (z - max z): slope = mean(E_p[x] - x_y), second derivative = slope + mean
    Var_p[x], of which the second term is never negative. One pass over chunks that stay in the
    cache, in float64 for few numbers, with float64 sums always.
    """
    double = logits.numel() <= MAX_FLOAT64_NUMBERS
    total = torch.zeros(2, dtype=torch.float64, device=logits.device)
    for rows, targets in chunked_pairs(logits, labels):
        x = (rows.double() if double else rows) * scale  # (n, C)
        x.sub_(x.amax(1, keepdim=True))
        own = x.gather(1, targets[:, None]).squeeze(1)

        weights = x.exp()
        mass = weights.sum(1)
        mean = weights.mul_(x).sum(1) / mass
        square = weights.mul_(x).sum(1) / mass

        total[0] += (mean - own).sum(dtype=torch.float64)
        total[1] += (square - mean * mean).sum(dtype=torch.float64)

    slope, variance = (total / len(logits)).tolist()
    return slope, max(variance, 0.0)  # rounding may make it negative


class SplitTemperature(NamedTuple):
    """A temperature, and two metrics after it on rows that it was not fitted on."""

    temperature: float
    tce: float  # ECE after it
    refinement: float  # NLL after it, which no temperature removes


def split_temperature(
    logits: Tensor, labels: Tensor, seed: int = 0, bins: int = 15
) -> SplitTemperature:
    """Fit a temperature on a random half of the rows and judge it on the other half.

    T is 1 if that half allows no fit: a single row, or equal logits for every class.

    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = torch.randn(2000, 3, generator=generator)
    >>> labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    >>> round(split_temperature(logits, labels, seed=0).temperature, 1)
    1.9
    """
    logits, labels = as_pair(logits, labels)
    if len(labels) < 2:
        raise ValueError(f"a temperature and its judge need at least 2 rows; got {len(labels)}")

    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(seed))
    fit, judge = order.to(logits.device).tensor_split(2)
    calibrator = Temperature()
    try:
        calibrator.fit_quietly(logits[fit], labels[fit])
    except ValueError:
        calibrator.become_identity(logits.shape[1], logits.device)

    after = calibrator(logits[judge].detach())
    with known_outputs():
        return SplitTemperature(
            temperature=float(calibrator.temperature),
            tce=float(ece(after, labels[judge], bins)),
            refinement=float(nll(after, labels[judge])),
        )
