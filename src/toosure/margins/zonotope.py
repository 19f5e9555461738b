"""Intervals by a zonotope: how each input number moves every activation, plus a box."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from toosure.margins.interval_tape import IntervalTape, rounding_of
from toosure.margins.relaxations import slope_of_tanh
from toosure.margins.robust import Norm, dual_norm
from toosure.margins.supported_ops import AffineRule, Args, IntervalNode, Kwargs, Op


@dataclass(eq=False)
class Zonotope(IntervalNode):
    """The set middle + sum_g spread_g d_g + sum_e errors_e s_e + box.

    d runs over the ball of radius eps, and each s_e over [-1, 1]: one for every activation that
    bends within the ball, numbered in the order of the network, so that branches share them.
    """

    middle: Tensor = field(default_factory=lambda: torch.zeros(()))  # (N, ...)
    spread: Tensor = field(default_factory=lambda: torch.zeros(()))  # (G, N, ...)
    errors: Tensor = field(default_factory=lambda: torch.zeros(()))  # (E, N, ...)
    box: Tensor = field(default_factory=lambda: torch.zeros(()))  # (N, ...), a radius


class ZonotopeRun(IntervalTape):
    """Run a network on a zonotope; keep only the intervals before each activation function.

    Where activations do not bend within the ball, the intervals are exact, however deep the
    network: plain intervals grow with every layer. It costs one pass per input number, and one
    per activation that bends, at most as many again; the errors of the rest go into the box.
    Reference: Singh et al. (2018), Fast and Effective Robustness Certification (DeepZ).
    """

    def __init__(self, graph: fx.GraphModule, eps: float, norm: Norm) -> None:
        super().__init__(graph, eps, norm)
        self.intervals: list[tuple[Tensor, Tensor]] = []
        self.symbols = 0  # activations that have bent so far

    def run_on_ball(self, x: Tensor) -> None:
        """Run on the ball around x, (N, ...): one generator per input number."""
        size = x[0].numel()
        eye = torch.eye(size, dtype=x.dtype, device=x.device)
        spread = eye.view(size, 1, *x.shape[1:]).expand(size, *x.shape)
        start = self.zonotope(x, spread, x.new_zeros(0, *x.shape), torch.zeros_like(x))
        self.run(start)

    def record(self, node: IntervalNode) -> IntervalNode:
        """Record nothing: generators are large, and the interpreter frees what is used up."""
        return node

    def zonotope(self, middle: Tensor, spread: Tensor, errors: Tensor, box: Tensor) -> Zonotope:
        """Return the zonotope with its interval; the sum of G terms is rounded outward."""
        reach = self.eps * dual_norm(spread.movedim(0, -1), self.norm) * (1 + len(spread) * 2e-16)
        radius = (reach + errors.abs().sum(0) + box) * (1 + len(errors) * 2e-16)
        radius = radius + 4e-16 * middle.abs()
        return Zonotope(
            middle - radius, middle + radius, middle=middle, spread=spread, errors=errors, box=box
        )

    def affine(self, rule: AffineRule, nodes: tuple[IntervalNode, ...]) -> IntervalNode:
        """Apply an affine op to the middle, to every generator and to the box."""
        zonotopes = [as_zonotope(node) for node in nodes]
        middle = rule.forward(*[z.middle for z in zonotopes])
        offset = rule.forward(*[torch.zeros_like(z.middle) for z in zonotopes])
        spread = torch.func.vmap(rule.forward)(*[z.spread for z in zonotopes]) - offset
        errors = self.affine_errors(rule, zonotopes, offset)

        # The absolute terms of all these sums bound their rounding; |errors| are within `terms`.
        terms = rule.absolute(*[z.largest for z in zonotopes]) + offset.abs()
        slope = rule.absolute(*[z.spread.abs().sum(0) for z in zonotopes])
        slope = slope + len(spread) * offset.abs()
        slope = self.eps * slope + len(errors) * offset.abs()
        slack = rounding_of(*nodes) * (terms + slope)

        box = rule.absolute(*[z.box for z in zonotopes]) + slack
        return self.zonotope(middle, spread, errors, box)

    def affine_errors(self, rule: AffineRule, zonotopes: list[Zonotope], offset: Tensor) -> Tensor:
        """Return the errors after an affine op; a branch that has fewer of them gets zeros."""
        count = max(len(z.errors) for z in zonotopes)
        if count == 0:
            return offset.new_zeros(0, *offset.shape)
        padded = [
            torch.cat([z.errors, z.errors.new_zeros(count - len(z.errors), *z.middle.shape)])
            for z in zonotopes
        ]
        outputs: Tensor = torch.func.vmap(rule.forward)(*padded)
        return outputs - offset

    def activation(self, node: IntervalNode, name: str) -> IntervalNode:
        """Enclose an activation function by s h + [low, high], one slope for both sides."""
        before = as_zonotope(node)
        lower, upper = before.lower, before.upper
        self.intervals.append((lower, upper))

        if name == "relu":
            crossing = (lower < 0) & (upper > 0)
            chord = upper / (upper - lower).clamp_min(1e-300)
            slope = torch.where(crossing, chord, (lower >= 0).to(lower))
            low = torch.zeros_like(lower)
            high = torch.where(crossing, -chord * lower, 0.0)
        else:  # tanh(h) - s h increases where s is the smallest slope
            slope = torch.minimum(slope_of_tanh(lower), slope_of_tanh(upper)) * (1 - 2e-15)
            low = lower.tanh() - slope * lower
            high = upper.tanh() - slope * upper

        slack = 4e-15 * (1 + slope * before.largest + low.abs() + high.abs())
        if name == "relu":
            slack = torch.where(upper <= 0, 0.0, slack)

        errors, unnamed = self.name_errors(
            slope * before.errors, (high - low) / 2, len(before.spread)
        )
        box = slope * before.box + unnamed + slack
        middle = slope * before.middle + (low + high) / 2
        return self.zonotope(middle, slope * before.spread, errors, box)

    def name_errors(self, errors: Tensor, radius: Tensor, maximum: int) -> tuple[Tensor, Tensor]:
        """Give the largest new radii, (N, ...), a symbol each; return all errors and the rest.

        At most `maximum` symbols are given in the whole run.
        """
        largest = radius.amax(0).flatten()
        count = min(int((largest > 0).sum()), maximum - self.symbols)
        places = largest.topk(count).indices

        named = radius.new_zeros(self.symbols + count, *radius.shape)
        named[: len(errors)] = errors
        flat = named.flatten(2)
        rest = radius.flatten(1).clone()

        index = torch.arange(count, device=radius.device)
        flat[self.symbols + index, :, places] = rest[:, places].T
        rest[:, places] = 0.0

        self.symbols += count
        return flat.view_as(named), rest.view_as(radius)

    def max_pool(self, node: IntervalNode, op: Op, args: Args, kwargs: Kwargs) -> IntervalNode:
        """Apply max-pooling to the interval alone; the generators end there."""
        before = as_zonotope(node)
        pooled = super().max_pool(node, op, args, kwargs)
        middle = (pooled.lower + pooled.upper) / 2
        radius = (pooled.upper - pooled.lower) / 2

        spread = before.spread.new_zeros(len(before.spread), *middle.shape)
        errors = before.spread.new_zeros(0, *middle.shape)
        return self.zonotope(middle, spread, errors, radius + 4e-16 * middle.abs())


def as_zonotope(node: IntervalNode) -> Zonotope:
    assert isinstance(node, Zonotope)
    return node


def zonotope_intervals(
    graph: fx.GraphModule, x: Tensor, eps: float, norm: Norm
) -> list[tuple[Tensor, Tensor]]:
    """Return the interval before every activation function, in the order of the network."""
    zonotopes = ZonotopeRun(graph, eps, norm)
    zonotopes.run_on_ball(x)
    return zonotopes.intervals
