"""Critical sharpness: how far the loss falls along an update, by forward passes alone."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from toosure.curvature.line_loss import LineLoss
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.result import Result, check_rtol

MAX_DOUBLINGS = 40  # of the step, before a rise is given up
MAX_HALVINGS = 20  # of the step, before a fall is given up
MAX_PASSES = 60  # forward passes over the data in all


def critical_sharpness(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    loss: LossLike = "ce",
    rtol: float = 0.02,
    *,
    update: Sequence[Tensor] | None = None,
    parameters: Sequence[str] | None = None,
    chunk: int = 512,
    group: "dist.ProcessGroup | None" = None,
) -> Result:
    """Measure 2 / eta_c, with eta_c the smallest step along an update that raises the loss.

    Formula: eta_c = min {eta > 0 : L(w - eta u) > L(w)}. On a quadratic 2 / eta_c is
    u^T H u / (g^T u), the curvature that the update meets; training is stable while the learning
    rate is below eta_c. Reference: Kalra et al. (2026), arXiv 2601.16979.

    `update` is u, one tensor per parameter, as the optimizer subtracts it (times the learning
    rate); without it u is the gradient g, from one backward pass. The step is lengthened or halved
    until the loss changes sides, then narrowed down to `rtol`: four to eight forward passes, no
    second derivatives. `error` is the width of what is left, and `products` counts the passes.

    It works where second derivatives do not: on models that FSDP2 shards (each process gives its
    share of the data, and all get the same number), with fused attention, in bfloat16 (whose
    rounding then limits how exact it is). With a `group` each process holds its share of the data
    and all weights. The model is in evaluation mode meanwhile, and its weights are moved in place
    and restored to the same bits.

    >>> model, x, y = nn.Linear(2, 3), torch.randn(8, 2), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    >>> critical_sharpness(model, (x, y)).converged
    True
    """
    check_rtol(rtol)
    line = LineLoss(model, data, loss, parameters, chunk, group)
    slope = math.nan
    if update is None:
        update = line.gradient()
        slope = line.dot(update, update)
        if slope == 0:
            return Result(math.nan, math.nan, converged=False, note="the gradient is zero")

    with line.along(update) as loss_at:
        search = Search(loss_at, slope, torch.finfo(update[0].dtype).eps)
        crossing = search.run(rtol)

    step, width, note = crossing
    value = 2 / step if step else math.inf
    return Result(value, width, products=search.passes, converged=not note, note=note)


class Crossing(NamedTuple):
    """Where the loss is back at its start: the step, its relative uncertainty, what went wrong."""

    step: float
    width: float
    note: str = ""


class Search:
    """Search the step at which the loss along a line is back at its value at 0.

    It looks at the mean rise r(eta) = (L(eta) - L(0)) / eta, which for a quadratic is a straight
    line from -slope at 0 through zero at eta_c: interpolation then finds eta_c at once.
    """

    def __init__(
        self, loss_at: Callable[[float], float], slope: float, resolution: float = 1e-7
    ) -> None:
        self.loss_at = loss_at
        self.slope = slope  # of the fall at 0; nan where it is not known
        self.resolution = resolution  # relative to the loss: smaller changes are rounding
        self.base = loss_at(0.0)
        self.passes = 1

        # The loss falls up to `low` and has risen at `high`; there r has these values.
        self.low = 0.0
        self.high = math.inf
        self.rise_at_low = -slope
        self.rise_at_high = math.inf
        self.before_low = (0.0, -slope)  # the end before `low`, and the rise there

    def run(self, rtol: float) -> Crossing:
        """Return the crossing, to a relative width of `rtol`."""
        if not math.isfinite(self.base):
            return Crossing(math.nan, math.nan, "the loss is not finite")

        # On a quadratic whose least value is 0 or more, eta_c is at most 4 L / slope.
        start = 1.0 if math.isnan(self.slope) else self.base / self.slope
        self.bracket(start if 0 < start < math.inf else 1.0)
        if math.isinf(self.high):
            return Crossing(math.inf, math.inf, f"the loss does not rise up to a step {self.low}")
        if self.low == 0 and math.isnan(self.slope):
            return Crossing(0.0, math.inf, "the loss rises at once: u is no direction of descent")

        self.narrow(rtol)
        width = (self.high - self.low) / self.high
        note = "" if width <= rtol else f"still within {width:.0%} after {self.passes} passes"
        return Crossing(self.interpolated(), width, note)

    def look(self, step: float) -> float:
        """Return by how much the loss has risen at a step, and keep the step as a new end."""
        change = self.loss_at(step) - self.base
        self.passes += 1
        if change < 0:
            self.before_low = (self.low, self.rise_at_low)
            self.low = step
            self.rise_at_low = change / step
        else:  # also where it is not a number
            self.high = step
            self.rise_at_high = change / step if math.isfinite(change) else math.inf
        return change

    def bracket(self, start: float) -> None:
        """Lengthen the step until the loss has risen, or halve it until it has fallen."""
        if self.look(start) < 0:
            for _ in range(MAX_DOUBLINGS):
                if not self.look(self.longer_step()) < 0:
                    return
            return

        # A known slope says that the loss falls at 0. Else a fall must be more than rounding.
        noise = self.resolution * abs(self.base)
        for _ in range(MAX_HALVINGS if math.isnan(self.slope) else 0):
            if self.look(self.high / 2) < -noise:
                return
            self.low = 0.0

    def longer_step(self) -> float:
        """Return a step a little beyond where the rises so far say that the loss is back."""
        before, rise_before = self.before_low
        gained = self.rise_at_low - rise_before
        if not gained > 0:  # also where it is not known
            return 2 * self.low
        root = self.low - self.rise_at_low * (self.low - before) / gained
        return min(max(1.01 * root, 1.25 * self.low), 10 * self.low)

    def narrow(self, rtol: float) -> None:
        """Bring the ends together."""
        widths = [math.inf, math.inf]
        while self.high - self.low > rtol * self.high and self.passes < MAX_PASSES:
            width = self.high - self.low
            middle = self.low + width / 2

            # Look beside the root, on the side of the end that is farther, so that both close in.
            guess = self.interpolated()
            beside = 0.45 * rtol * guess
            step = guess + beside if guess < middle else guess - beside

            slow = width > widths[-2] / 2  # interpolation does no better than halving
            inside = self.low < step < self.high
            self.look(middle if slow or not inside else step)
            widths.append(width)

    def interpolated(self) -> float:
        """Return where a straight line between the two ends says that the rise is zero."""
        if math.isinf(self.rise_at_high):
            return (self.low + self.high) / 2
        share = self.rise_at_low / (self.rise_at_low - self.rise_at_high)
        return self.low + share * (self.high - self.low)
