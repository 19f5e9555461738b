"""Run a network on a ball of inputs, op by op, with an interval around every activation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from toosure.margins.fx_graph import IN_PLACE
from toosure.margins.relaxations import pool_choice, relu_lines, tanh_lines
from toosure.margins.robust import Norm
from toosure.margins.supported_ops import (
    ACTIVATIONS,
    KNOWN,
    SHAPE_ATTRIBUTES,
    SHAPE_METHODS,
    ActivationRule,
    AffineRule,
    Args,
    IntervalNode,
    Kwargs,
    MaxPoolRule,
    Op,
    affine_rule,
    fill,
    nodes_in,
    pool_settings,
    row_norms,
)


def rounding_of(*nodes: IntervalNode) -> float:
    """Return 2 (n + 8) 2^-53, which bounds the relative error of a sum of n products, twice."""
    return 2.0**-52 * (8 + sum(node.lower[0].numel() for node in nodes))


class IntervalTape(fx.Interpreter):
    """Run a float64 network on a ball of inputs and record every activation with its interval.

    `tighten(tape, node)` may narrow an interval before an activation function is applied to it.
    """

    centre: Tensor  # (N, ...), the middle of each ball

    def __init__(
        self,
        graph: fx.GraphModule,
        eps: float,
        norm: Norm,
        tighten: Callable[["IntervalTape", IntervalNode], None] | None = None,
    ) -> None:
        super().__init__(graph)
        self.eps = eps
        self.norm = norm
        self.tighten = tighten
        self.nodes: list[IntervalNode] = []
        self.extra_traceback = False  # fx would add lines of its own to our errors

    def propagate(self, x: Tensor) -> IntervalNode:
        """Run on the ball around x, (N, ...), and return the node of the logits."""
        self.centre = x
        start = self.record(IntervalNode(x - self.eps, x + self.eps, ball=True))
        try:
            logits = self.run(start)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(f"certified bounds cannot follow the network: {error}") from error

        if not isinstance(logits, IntervalNode):
            raise ValueError("the model's output does not depend on its input through known ops")
        if logits.lower.ndim != 2:
            raise ValueError(f"logits must have shape (N, C); got {tuple(logits.lower.shape)}")
        return logits

    def record(self, node: IntervalNode) -> IntervalNode:
        """Append a node to the tape; raise if it mixes samples or left float64."""
        if node.lower.dtype != torch.float64 or node.lower.shape[:1] != self.centre.shape[:1]:
            raise ValueError(
                f"certified bounds keep samples apart, in float64: {len(self.centre)} samples gave "
                f"{node.lower.dtype} {tuple(node.lower.shape)}"
            )
        self.nodes.append(node)
        return node

    def call_module(self, target: fx.node.Target, args: Args, kwargs: Kwargs) -> Any:
        assert isinstance(target, str)
        module = self.fetch_attr(target)
        return self.call(type(module), module, args, kwargs)

    def call_function(self, target: fx.node.Target, args: Args, kwargs: Kwargs) -> Any:
        assert callable(target)
        return self.call(target, target, args, kwargs)

    def call_method(self, target: fx.node.Target, args: Args, kwargs: Kwargs) -> Any:
        def method(value: object, *rest: object, **named: object) -> object:
            return getattr(value, str(target))(*rest, **named)

        return self.call(target, method, args, kwargs)

    def call(self, key: object, op: Op, args: Args, kwargs: Kwargs) -> Any:
        """Apply the rule of one call of the network; a call without activations is just run."""
        nodes = nodes_in((args, kwargs))
        name = getattr(key, "__name__", key)
        if not nodes:
            return op(*args, **kwargs)
        if key in IN_PLACE and not isinstance(args[0], IntervalNode):
            raise ValueError(f"no certified bound: {name} writes into a constant")
        if key in SHAPE_METHODS or (key is getattr and args[1] in SHAPE_ATTRIBUTES):
            return op(*fill(args, [n.lower for n in nodes]), **kwargs)

        if key in ACTIVATIONS:
            return self.activation(nodes[0], ACTIVATIONS[key])
        if key is nn.MaxPool2d or key is F.max_pool2d:
            return self.max_pool(nodes[0], op, args, kwargs)

        rule = affine_rule(key, op, args, kwargs, nodes)
        if rule is None:
            name = f"reading .{args[1]}" if key is getattr else name
            raise ValueError(f"no certified bound is known for {name}; known are {KNOWN}")
        return self.affine(rule, nodes)

    def affine(self, rule: AffineRule, nodes: tuple[IntervalNode, ...]) -> IntervalNode:
        """Apply an affine op to intervals, rounded outward."""
        # The op is affine, so its transposed matrix is its derivative at zero.
        zeros = [torch.zeros_like(n.lower) for n in nodes]
        rule.offset, rule.pull, *_ = torch.func.vjp(rule.forward, *zeros)
        rule.pull_absolute = torch.func.vjp(rule.absolute, *zeros)[1]

        first = nodes[0]
        if rule.reshapes and first.ball:
            terms = rule.absolute(first.largest)
            lower = rule.forward(first.lower)
            upper = rule.forward(first.upper)
            return self.record(IntervalNode(lower, upper, nodes, rule, terms, ball=True))

        middles = [(n.lower + n.upper) / 2 for n in nodes]
        if first.ball and rule.module is not None:
            # On the ball itself the dual norm of each row is exact, for l2 too.
            radius = self.eps * row_norms(rule.module, self.norm)
            middles = [self.centre.reshape(first.lower.shape)]
        else:
            radius = rule.absolute(*[(n.upper - n.lower) / 2 for n in nodes])

        middle = rule.forward(*middles)
        terms = rule.absolute(*[n.largest for n in nodes]) + rule.offset.abs()
        radius = radius + rounding_of(*nodes) * terms
        return self.record(IntervalNode(middle - radius, middle + radius, nodes, rule, terms))

    def activation(self, node: IntervalNode, name: str) -> IntervalNode:
        """Apply an activation function, which is monotone, to an interval."""
        if self.tighten is not None:
            self.tighten(self, node)

        function = torch.relu if name == "relu" else torch.tanh
        lines = (relu_lines if name == "relu" else tanh_lines)(node.lower, node.upper)
        slack = 0.0 if name == "relu" else 1e-15
        lower = function(node.lower) - slack
        upper = function(node.upper) + slack

        slope = torch.maximum(lines.low_slope.abs(), lines.high_slope.abs())
        terms = slope * node.largest + torch.maximum(lines.low.abs(), lines.high.abs())
        return self.record(IntervalNode(lower, upper, (node,), ActivationRule(name, lines), terms))

    def max_pool(self, node: IntervalNode, op: Op, args: Args, kwargs: Kwargs) -> IntervalNode:
        """Apply max-pooling, which is monotone, to an interval."""
        kernel, stride, padding = pool_settings(op, args, kwargs)
        lower, upper = (F.max_pool2d(v, kernel, stride, padding) for v in (node.lower, node.upper))
        chosen, decided = pool_choice(node.lower, node.upper, kernel, stride, padding)

        rule = MaxPoolRule(kernel, stride, padding, chosen, decided)
        terms = torch.maximum(lower.abs(), upper.abs())
        return self.record(IntervalNode(lower, upper, (node,), rule, terms))


def as_batch_of_two(sample: Tensor) -> Tensor:
    """Return one sample twice: `squeeze` would take the batch axis of a batch of one away."""
    return torch.cat([sample, sample])
