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
    """The set middle + sum_g spread_g d_g + sum_e errors_e s_e + box.

    d runs over the ball of radius eps, each s_e over [-1, 1]: one for every activation that bends
    within the ball, numbered in the order they are met, so that branches share them.
    """

    middle: Tensor = field(default_factory=lambda: torch.zeros(()))  # (N, ...)
    spread: Tensor = field(default_factory=lambda: torch.zeros(()))  # (G, N, ...)
    errors: Tensor = field(default_factory=lambda: torch.zeros(()))  # (E, N, ...)
    box: Tensor = field(default_factory=lambda: torch.zeros(()))  # (N, ...), a radius


class Generators(Tape):
    """Run a network on a zonotope; keep only the intervals that meet an activation.

    Where activations do not bend within the ball, the intervals are exact, however deep the
    network: plain intervals grow with every layer. The price is one pass for each input number,
    and one for each activation that bends, at most as many again; the rest go into the box.
    Reference: Singh et al. (2018), Fast and Effective Robustness Certification (DeepZ).
    """

    def __init__(self, graph: fx.GraphModule, eps: float, norm: Norm) -> None:
        super().__init__(graph, eps, norm)
        self.found: list[tuple[Tensor, Tensor]] = []
        self.symbols = 0  # activations that have bent so far

    def follow(self, x: Tensor) -> Node:
        size = x[0].numel()
        eye = torch.eye(size, dtype=x.dtype, device=x.device)
        spread = eye.view(size, 1, *x.shape[1:]).expand(size, *x.shape)
        return self.run(self.make(x, spread, x.new_zeros(0, *x.shape), torch.zeros_like(x)))

    def keep(self, node: Node) -> Node:
        return node  # no tape: generators are large, and the interpreter frees what is used up

    def make(self, middle: Tensor, spread: Tensor, errors: Tensor, box: Tensor) -> Zonotope:
        """Return the zonotope with its interval; the sum of G terms is rounded outward."""
        reach = self.eps * dual_norm(spread.movedim(0, -1), self.norm) * (1 + len(spread) * 2e-16)
        radius = (reach + errors.abs().sum(0) + box) * (1 + len(errors) * 2e-16)
        radius = radius + 4e-16 * middle.abs()
        return Zonotope(
            middle - radius, middle + radius, middle=middle, spread=spread, errors=errors, box=box
        )

    def affine(self, rule: Affine, nodes: tuple[Any, ...]) -> Node:
        middle = rule.forward(*[n.middle for n in nodes])
        offset = rule.forward(*[torch.zeros_like(n.middle) for n in nodes])
        spread = torch.func.vmap(rule.forward)(*[n.spread for n in nodes]) - offset
        errors = self.push(rule, nodes, offset)
        terms = rule.absolute(*[n.largest for n in nodes]) + offset.abs()
        slope = rule.absolute(*[n.spread.abs().sum(0) for n in nodes]) + len(spread) * offset.abs()
        slope = self.eps * slope + len(errors) * offset.abs()  # |errors| are within `terms`
        slack = rounding_of(*nodes) * (terms + slope)
        return self.make(middle, spread, errors, rule.absolute(*[n.box for n in nodes]) + slack)

    def push(self, rule: Affine, nodes: tuple[Any, ...], offset: Tensor) -> Tensor:
        """Return the errors behind an affine op; a branch that has seen fewer gets zeros."""
        most = max(len(n.errors) for n in nodes)
        if most == 0:
            return offset.new_zeros(0, *offset.shape)
        padded = [
            torch.cat([n.errors, n.errors.new_zeros(most - len(n.errors), *n.middle.shape)])
            for n in nodes
        ]
        return torch.func.vmap(rule.forward)(*padded) - offset

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
        errors, bent = self.name_errors(slope * node.errors, (high - low) / 2, len(node.spread))
        box = slope * node.box + bent + slack
        middle = slope * node.middle + (low + high) / 2
        return self.make(middle, slope * node.spread, errors, box)

    def name_errors(self, errors: Tensor, radius: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Give the largest new radii, (N, ...), a symbol each; return all errors and the rest."""
        largest = radius.amax(0).flatten()
        room = most - self.symbols
        count = min(int((largest > 0).sum()), room)
        places = largest.topk(count).indices
        columns = radius.new_zeros(self.symbols + count, *radius.shape)
        columns[: len(errors)] = errors
        flat, rest = columns.flatten(2), radius.flatten(1).clone()
        index = torch.arange(count, device=radius.device)
        flat[self.symbols + index, :, places] = rest[:, places].T
        rest[:, places] = 0.0
        self.symbols += count
        return flat.view_as(columns), rest.view_as(radius)

    def pool(self, node: Any, op: Any, args: tuple, kwargs: dict) -> Node:
        """Carry only the interval through max-pooling."""
        pooled = super().pool(node, op, args, kwargs)
        middle, radius = (pooled.lower + pooled.upper) / 2, (pooled.upper - pooled.lower) / 2
        spread = node.spread.new_zeros(len(node.spread), *middle.shape)
        errors = node.spread.new_zeros(0, *middle.shape)
        return self.make(middle, spread, errors, radius + 4e-16 * middle.abs())


def generator_intervals(
    graph: fx.GraphModule, x: Tensor, eps: float, norm: Norm
) -> list[tuple[Tensor, Tensor]]:
    """Return the interval before every activation, in the order the network meets them."""
    run = Generators(graph, eps, norm)
    run.follow(x)
    return run.found
