"""Critical sharpness: how far the loss falls along an update, from forward passes alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from toosure.curvature.line_loss import LineLoss
from toosure.curvature.products.functional_model import ParameterChoice
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.result import Result, check_rtol

MAX_DOUBLINGS = 40  # of the step, until the search for a rise ends
MAX_HALVINGS = 20  # of the step, until the search for a fall ends
MAX_PASSES = 60  # forward passes over the data in all


def critical_sharpness(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    loss: LossLike = "ce",
    rtol: float = 0.02,
    *,
    update: Sequence[Tensor] | None = None,
    parameters: ParameterChoice | None = None,
    chunk: int = 512,
    group: "dist.ProcessGroup | None" = None,
    warm: "WarmStep | None" = None,
) -> Result:
    """Measure 2 / eta_c, with eta_c the smallest step along an update that raises the loss.

    Formula: eta_c = min {eta > 0 : L(w - eta u) > L(w)}. On a quadratic 2 / eta_c is
    u^T H u / (g^T u), the curvature that the update meets; training is stable while the learning
    rate is below eta_c. Reference: Kalra et al. (2026), arXiv 2601.16979.

    `update` is u, one tensor per parameter, as the optimizer subtracts it (times the learning
    rate); without it u is the gradient g, from one backward pass. The step is lengthened or halved
    until the loss changes sides, then narrowed down to `rtol`: four to six forward passes, no
    second derivatives. `error` is the width of the last interval, `products` the number of passes.
    Along training, give the same `warm` each time: the search starts from the last step found.

    It works where second derivatives do not: on models sharded by FSDP2 (each process gives its
    share of the data, and all get the same number), with fused attention, and in bfloat16 (then
    rounding limits the precision). With a `group` each process holds its share of the data and all
    weights. Meanwhile the model is in evaluation mode, and its weights are moved in place and
    restored to the same bits.

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
        crossing = search.run(rtol, warm)

    step, width, note = crossing
    value = 2 / step if step else math.inf
    return Result(value, width, products=search.passes, converged=not note, note=note)


class Crossing(NamedTuple):
    """The step at which the loss is back at its start, its relative uncertainty, and a warning."""

    step: float
    width: float
    note: str = ""


class WarmStep:
    """The last step that was found, from which the next search starts.

    It is kept twice: in plain units, and in units of L / slope, the step at which a straight fall
    would reach a loss of 0. The next search starts half way between the two.
    """

    def __init__(self) -> None:
        self.step = 0.0  # 0 if none was found yet
        self.unit = 0.0  # L / slope when it was found

    def next(self, unit: float) -> float:
        """Return the step to start from, given the present L / slope."""
        if not self.step:
            return unit
        moved = unit / self.unit if self.unit and math.isfinite(unit) else 1.0
        return self.step * math.sqrt(moved)

    def keep(self, step: float, unit: float) -> None:
        """Keep a step that was found; a search without a result changes nothing."""
        if 0 < step < math.inf:
            self.step = step
            self.unit = unit if math.isfinite(unit) else 0.0

    def state_dict(self) -> dict[str, float]:
        return {"step": self.step, "unit": self.unit}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.step = state["step"]
        self.unit = state["unit"]


class Search:
    """Search the step at which the loss along a line is back at its value at 0.

    It computes the mean rise r(eta) = (L(eta) - L(0)) / eta. For a quadratic this is a straight
    line from -slope at 0 through zero at eta_c, so interpolation finds eta_c at once.
    """

    def __init__(
        self, loss_at: Callable[[float], float], slope: float, resolution: float = 1e-7
    ) -> None:
        self.loss_at = loss_at
        self.slope = slope  # of the fall at 0; nan if unknown
        self.resolution = resolution  # relative to the loss: smaller changes are rounding
        self.base = loss_at(0.0)
        self.passes = 1

        # The loss falls up to `low` and has risen at `high`.
        self.low = 0.0
        self.high = math.inf
        self.points = [] if math.isnan(slope) else [(0.0, -slope)]  # steps, with r there
        self.last_root = math.nan

    def run(self, rtol: float, warm: WarmStep | None = None) -> Crossing:
        """Return the crossing, to a relative width of `rtol`."""
        if not math.isfinite(self.base):
            return Crossing(math.nan, math.nan, "the loss is not finite")

        # On a quadratic that is never negative, eta_c is at most 4 L / slope.
        unit = 1.0 if math.isnan(self.slope) else self.base / self.slope
        unit = unit if 0 < unit < math.inf else 1.0
        warm = warm or WarmStep()
        self.bracket(warm.next(unit), rtol)
        if math.isinf(self.high):
            return Crossing(math.inf, math.inf, f"the loss does not rise up to a step {self.low}")
        if self.low == 0 and math.isnan(self.slope):
            return Crossing(0.0, math.inf, "the loss rises at once: u is not a descent direction")

        self.narrow(rtol)
        width = (self.high - self.low) / self.high
        note = "" if width <= rtol else f"still within {width:.0%} after {self.passes} passes"
        step = self.root() or (self.low + self.high) / 2
        warm.keep(step, unit)
        return Crossing(step, width, note)

    def evaluate(self, step: float) -> float:
        """Return the rise of the loss at a step, and make the step a new end of the bracket."""
        change = self.loss_at(step) - self.base
        self.passes += 1
        if math.isfinite(change):
            self.points.append((step, change / step))
        if change < 0:
            self.low = step
        else:  # also where it is not a number
            self.high = step
        return change

    def bracket(self, start: float, rtol: float) -> None:
        """Lengthen the step until the loss has risen, or halve it until it has fallen."""
        self.last_root = start
        if self.evaluate(start) < 0:
            for _ in range(MAX_DOUBLINGS):
                if not self.evaluate(self.longer_step(rtol)) < 0:
                    return
            return

        # With a known slope the loss falls at 0. Without one a fall must be more than rounding.
        noise = self.resolution * abs(self.base)
        for _ in range(MAX_HALVINGS if math.isnan(self.slope) else 0):
            if self.evaluate(self.high / 2) < -noise:
                return
            self.low = 0.0

    def longer_step(self, rtol: float) -> float:
        """Return a step a little beyond the root that the known rises predict."""
        root = self.root()
        if root is None:
            return 2 * self.low
        step = root + self.offset(root, rtol, share=0.1)
        return min(max(step, (1 + 0.9 * rtol) * self.low), 10 * self.low)

    def narrow(self, rtol: float) -> None:
        """Shrink the bracket to a relative width of `rtol`, by interpolation or halving."""
        widths = [math.inf, math.inf]
        while self.high - self.low > rtol * self.high and self.passes < MAX_PASSES:
            width = self.high - self.low
            middle = self.low + width / 2

            # Step beside the root, towards the farther end, so that both ends move in.
            step = middle
            if (root := self.root()) is not None:
                beside = self.offset(root, rtol, share=0.05)
                step = root + beside if root < middle else root - beside

            slow = width > widths[-2] / 2  # interpolation does no better than halving
            inside = self.low < step < self.high
            self.evaluate(middle if slow or not inside else step)
            widths.append(width)

    def offset(self, root: float, rtol: float, share: float) -> float:
        """Return a distance from the root: a share of its last move, at least about half `rtol`.

        The root is kept as the last one.
        """
        moved = abs(root - self.last_root)
        self.last_root = root
        return max(0.45 * rtol * root, min(share * moved, root / 4))

    def root(self) -> float | None:
        """Return the step of zero rise, from the points nearest to it; None if they give none.

        Inverse interpolation: the step is a polynomial in r through three points, or through two if
        the first lies outside of the bracket.
        """
        nearest = sorted(self.points, key=lambda point: abs(point[1]))
        for count in (3, 2):
            points = nearest[:count]
            if len({rise for _, rise in points}) < count:
                continue
            step = interpolated_at_zero(points)
            if self.low < step < self.high:
                return step
        return None


def interpolated_at_zero(points: Sequence[tuple[float, float]]) -> float:
    """Return x at y = 0 on the polynomial x(y) through points (x, y), by Lagrange's formula.

    >>> interpolated_at_zero([(1.0, -1.0), (3.0, 1.0)])
    2.0
    """
    total = 0.0
    for i, (x, y) in enumerate(points):
        others = [other for j, (_, other) in enumerate(points) if j != i]
        total += x * math.prod(-other / (y - other) for other in others)
    return total
