"""Intervals by generators: follow how each input number moves every activation, plus a box."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from toosure.margins.relaxations import slope_of_tanh
from toosure.margins.robust import Norm, dual_norm
from toosure.margins.rules import Affine, Node
from toosure.margins.tracing import Tape, rounding_of


@dataclass(eq=False)
class Zonotope(Node):
    """The set middle + sum_g spread_g d_g + box, over all d in the ball of radius eps."""

    middle: Tensor = field(default_factory=lambda: torch.zeros(()))  # (N, ...)
    spread: Tensor = field(default_factory=lambda: torch.zeros(()))  # (G, N, ...)
    box: Tensor = field(default_factory=lambda: torch.zeros(()))  # (N, ...), a radius


class Generators(Tape):
    """Run a network on a zonotope; keep only the intervals that meet an activation.

    Where activations do not bend within the ball, the intervals are exact, however deep the
    network: plain intervals grow with every layer. The price is one pass for each input number.
    Reference: Singh et al. (2018), Fast and Effective Robustness Certification (DeepZ).
    """

    def __init__(self, graph: fx.GraphModule, eps: float, norm: Norm) -> None:
        super().__init__(graph, eps, norm)
        self.found: list[tuple[Tensor, Tensor]] = []

    def follow(self, x: Tensor) -> Node:
        size = x[0].numel()
        eye = torch.eye(size, dtype=x.dtype, device=x.device)
        spread = eye.view(size, 1, *x.shape[1:]).expand(size, *x.shape)
        return self.run(self.make(x, spread, torch.zeros_like(x)))

    def keep(self, node: Node) -> Node:
        return node  # no tape: generators are large, and the interpreter frees what is used up

    def make(self, middle: Tensor, spread: Tensor, box: Tensor) -> Zonotope:
        """Return the zonotope with its interval; the sum of G terms is rounded outward."""
        reach = self.eps * dual_norm(spread.movedim(0, -1), self.norm) * (1 + len(spread) * 2e-16)
        radius = reach + box + 4e-16 * middle.abs()
        return Zonotope(middle - radius, middle + radius, middle=middle, spread=spread, box=box)

    def affine(self, rule: Affine, nodes: tuple[Any, ...]) -> Node:
        middle = rule.forward(*[n.middle for n in nodes])
        offset = rule.forward(*[torch.zeros_like(n.middle) for n in nodes])
        spread = torch.func.vmap(rule.forward)(*[n.spread for n in nodes]) - offset
        terms = rule.absolute(*[n.largest for n in nodes]) + offset.abs()
        slope = rule.absolute(*[n.spread.abs().sum(0) for n in nodes]) + len(spread) * offset.abs()
        slack = rounding_of(*nodes) * (terms + self.eps * slope)
        return self.make(middle, spread, rule.absolute(*[n.box for n in nodes]) + slack)

    def bend(self, node: Any, name: str) -> Node:
        """Enclose an activation by s h + [low, high], one slope for both sides."""
        lower, upper = node.lower, node.upper
        self.found.append((lower, upper))
        if name == "relu":
            crossing = (lower < 0) & (upper > 0)
            chord = upper / (upper - lower).clamp_min(1e-300)
            slope = torch.where(crossing, chord, (lower >= 0).to(lower))
            low, high = torch.zeros_like(lower), torch.where(crossing, -chord * lower, 0.0)
        else:  # tanh(h) - s h increases where s is the least slope
            slope = torch.minimum(slope_of_tanh(lower), slope_of_tanh(upper)) * (1 - 2e-15)
            low, high = lower.tanh() - slope * lower, upper.tanh() - slope * upper
        slack = 4e-15 * (1 + slope * node.largest + low.abs() + high.abs())
        slack = torch.where(upper <= 0, 0.0, slack) if name == "relu" else slack
        box = slope * node.box + (high - low) / 2 + slack
        return self.make(slope * node.middle + (low + high) / 2, slope * node.spread, box)

    def pool(self, node: Any, op: Any, args: tuple, kwargs: dict) -> Node:
        """Carry only the interval through max-pooling."""
        pooled = super().pool(node, op, args, kwargs)
        middle, radius = (pooled.lower + pooled.upper) / 2, (pooled.upper - pooled.lower) / 2
        spread = node.spread.new_zeros(1, 1).expand(len(node.spread), middle.numel())
        return self.make(middle, spread.reshape(-1, *middle.shape), radius + 4e-16 * middle.abs())


def generator_intervals(
    graph: fx.GraphModule, x: Tensor, eps: float, norm: Norm
) -> list[tuple[Tensor, Tensor]]:
    """Return the interval before every activation, in the order the network meets them."""
    run = Generators(graph, eps, norm)
    run.follow(x)
    return run.found
