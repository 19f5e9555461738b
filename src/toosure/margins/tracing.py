"""Follow a network op by op with an interval around every activation, and keep the tape."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from toosure.margins.inplace import IN_PLACE, rebind_in_place, trace_writes
from toosure.margins.relaxations import pool_choice, relu_lines, tanh_lines
from toosure.margins.robust import Norm
from toosure.margins.rules import (
    ACTIVATIONS,
    FACTS,
    KNOWN,
    SHAPES,
    Affine,
    Curve,
    Node,
    Pool,
    affine_rule,
    fill,
    nodes_in,
    pool_settings,
    row_norms,
)


def rounding_of(*nodes: Node) -> float:
    """Return 2 (n + 8) 2^-53, which bounds the relative error of a sum of n products, twice."""
    return 2.0**-52 * (8 + sum(node.lower[0].numel() for node in nodes))


class Tape(fx.Interpreter):
    """Run a float64 network on a ball of inputs and keep every activation with its interval.

    `tighten(node)` may replace the interval before an activation bends it.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        eps: float,
        norm: Norm,
        tighten: Callable[["Tape", Node], None] | None = None,
    ) -> None:
        super().__init__(graph)
        self.eps, self.norm, self.tighten = eps, norm, tighten
        self.nodes: list[Node] = []
        self.extra_traceback = False  # our errors speak for themselves

    def follow(self, x: Tensor) -> Node:
        """Run on the ball around x, (N, ...), and return the logits' node."""
        self.centre = x
        start = self.keep(Node(x - self.eps, x + self.eps, ball=True))
        try:
            logits = self.run(start)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(f"certified bounds cannot follow the network: {error}") from error
        if not isinstance(logits, Node):
            raise ValueError("the model's output does not depend on its input through known ops")
        if logits.lower.ndim != 2:
            raise ValueError(f"logits must have shape (N, C); got {tuple(logits.lower.shape)}")
        return logits

    def keep(self, node: Node) -> Node:
        if node.lower.dtype != torch.float64 or node.lower.shape[:1] != self.centre.shape[:1]:
            raise ValueError(
                f"certified bounds keep samples apart, in float64: {len(self.centre)} samples gave "
                f"{node.lower.dtype} {tuple(node.lower.shape)}"
            )
        self.nodes.append(node)
        return node

    def call_module(self, target: Any, args: tuple, kwargs: dict) -> Any:
        module = self.fetch_attr(target)
        return self.call(type(module), module, args, kwargs)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.call(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple, kwargs: dict) -> Any:
        def method(value: Any, *rest: Any, **named: Any) -> Any:
            return getattr(value, target)(*rest, **named)

        return self.call(target, method, args, kwargs)

    def call(self, key: Any, op: Any, args: tuple, kwargs: dict) -> Any:
        """Send one call of the network to its rule; what never meets the input is just run."""
        nodes = nodes_in((args, kwargs))
        if not nodes:
            return op(*args, **kwargs)
        if key in IN_PLACE and not isinstance(args[0], Node):
            raise ValueError(f"no certified bound: {key.__name__} writes into a constant")
        if key in SHAPES or (key is getattr and args[1] in FACTS):
            return op(*fill(args, [n.lower for n in nodes]), **kwargs)
        if key in ACTIVATIONS:
            return self.bend(nodes[0], ACTIVATIONS[key])
        if key is nn.MaxPool2d or key is F.max_pool2d:
            return self.pool(nodes[0], op, args, kwargs)
        rule = affine_rule(key, op, args, kwargs, nodes)
        if rule is None:
            name = getattr(key, "__name__", key)
            name = f"reading .{args[1]}" if key is getattr else name
            raise ValueError(f"no certified bound is known for {name}; known are {KNOWN}")
        return self.affine(rule, nodes)

    def affine(self, rule: Affine, nodes: tuple[Node, ...]) -> Node:
        """Carry intervals through an affine op, rounded outward."""
        zeros = [torch.zeros_like(n.lower) for n in nodes]
        found = torch.func.vjp(rule.forward, *zeros)
        rule.offset, rule.pull = found[0], found[1]
        rule.pull_absolute = torch.func.vjp(rule.absolute, *zeros)[1]
        if rule.reshapes and nodes[0].ball:
            lower, upper = rule.forward(nodes[0].lower), rule.forward(nodes[0].upper)
            return self.keep(Node(lower, upper, nodes, rule, rule.absolute(nodes[0].largest), True))
        middles = [(n.lower + n.upper) / 2 for n in nodes]
        if nodes[0].ball and rule.module is not None:
            radius = self.eps * row_norms(rule.module, self.norm)
            middles = [self.centre.reshape(nodes[0].lower.shape)]
        else:
            radius = rule.absolute(*[(n.upper - n.lower) / 2 for n in nodes])
        middle = rule.forward(*middles)
        terms = rule.absolute(*[n.largest for n in nodes]) + rule.offset.abs()
        radius = radius + rounding_of(*nodes) * terms
        return self.keep(Node(middle - radius, middle + radius, nodes, rule, terms))

    def bend(self, node: Node, name: str) -> Node:
        """Carry an interval through an activation, which is monotone."""
        if self.tighten is not None:
            self.tighten(self, node)
        bent = torch.relu if name == "relu" else torch.tanh
        lines = (relu_lines if name == "relu" else tanh_lines)(node.lower, node.upper)
        slack = 0.0 if name == "relu" else 1e-15
        slope = torch.maximum(lines.low_slope.abs(), lines.high_slope.abs())
        terms = slope * node.largest + torch.maximum(lines.low.abs(), lines.high.abs())
        lower, upper = bent(node.lower) - slack, bent(node.upper) + slack
        return self.keep(Node(lower, upper, (node,), Curve(name, lines), terms))

    def pool(self, node: Node, op: Any, args: tuple, kwargs: dict) -> Node:
        """Carry an interval through max-pooling, which is monotone."""
        kernel, stride, padding = pool_settings(op, args, kwargs)
        lower, upper = (F.max_pool2d(v, kernel, stride, padding) for v in (node.lower, node.upper))
        chosen, decided = pool_choice(node.lower, node.upper, kernel, stride, padding)
        rule = Pool(kernel, stride, padding, chosen, decided)
        terms = torch.maximum(lower.abs(), upper.abs())
        return self.keep(Node(lower, upper, (node,), rule, terms))


def twice(sample: Tensor) -> Tensor:
    """Return one sample as a batch of two: `squeeze` would take a batch of one for a sample."""
    return torch.cat([sample, sample])


def trace(model: nn.Module) -> fx.GraphModule:
    """Return the model as a graph of ops, or say why that cannot be done."""
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise ValueError(
                f"certified bounds do not follow hooks; module {name or type(module).__name__!r} "
                "has one (weight norm and pruning are hooks too: make them permanent first)"
            )
    try:
        graph = trace_writes(nn.Sequential(model))  # the root itself is never a leaf
    except Exception as error:  # fx raises many kinds
        raise ValueError(
            f"certified bounds need a model that torch.fx can trace; {type(model).__name__} "
            f"cannot be: {error}"
        ) from error
    rebind_in_place(graph)
    return graph
