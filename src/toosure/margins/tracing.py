"""Follow a network op by op with an interval around every activation, and keep the tape."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.nn import functional as F

from toosure.margins.relaxations import Lines, pool_choice, relu_lines, tanh_lines
from toosure.margins.robust import Norm, dual_norm

CONVOLUTIONS: dict[type, Callable[..., Tensor]] = {nn.Conv1d: F.conv1d, nn.Conv2d: F.conv2d}
ACTIVATIONS: dict[Any, str] = {
    nn.ReLU: "relu", F.relu: "relu", torch.relu: "relu", "relu": "relu",
    nn.Tanh: "tanh", F.tanh: "tanh", torch.tanh: "tanh", "tanh": "tanh",
}  # fmt: skip
# Linear with coefficients >= 0 and no constant, so that the op is its own absolute value.
RESHAPES = {nn.Flatten, nn.Identity, nn.Unflatten, nn.Dropout, nn.Dropout2d, torch.flatten,
            torch.reshape, "flatten", "reshape", "view", "contiguous"}  # fmt: skip
AVERAGES = {nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ZeroPad2d, F.avg_pool2d, torch.mean, torch.sum,
            F.adaptive_avg_pool2d, torch.cat, operator.getitem, "mean", "sum", "permute",
            "transpose", "squeeze", "unsqueeze"}  # fmt: skip
ARITHMETIC: dict[Any, Callable[..., Tensor]] = {
    operator.add: torch.add, operator.iadd: torch.add, torch.add: torch.add, "add": torch.add,
    operator.sub: torch.sub, operator.isub: torch.sub, torch.sub: torch.sub, "sub": torch.sub,
    operator.mul: torch.mul, operator.imul: torch.mul, torch.mul: torch.mul, "mul": torch.mul,
    operator.truediv: torch.div, torch.div: torch.div, "div": torch.div,
    operator.neg: torch.neg, torch.neg: torch.neg,
}  # fmt: skip
SHAPES = {"size", "dim", getattr}
KNOWN = (
    "Linear, Conv1d, Conv2d, Tanh, ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, Flatten, "
    "eval-mode BatchNorm and Dropout, additions, scalings, slices, zero padding and means"
)


@dataclass(eq=False)
class Affine:
    """An op that is affine in its tensors: what it does, and what |its matrix| does."""

    forward: Callable[..., Tensor]
    absolute: Callable[..., Tensor]
    module: nn.Module | None = None  # a Linear or convolution, whose norms are known more sharply
    reshapes: bool = False
    offset: Tensor = field(init=False)  # what it makes of zeros
    pull: Callable[..., Any] = field(init=False)  # the transposed matrix
    pull_absolute: Callable[..., Any] = field(init=False)


@dataclass(eq=False)
class Curve:
    """An activation, between two lines on the interval it was given."""

    name: str
    lines: Lines


@dataclass(eq=False)
class Pool:
    """Max-pooling: the element with the best lower bound, and whether it is sure to win."""

    kernel: int
    stride: int
    padding: int
    chosen: Tensor
    decided: Tensor


@dataclass(eq=False)
class Node:
    """An activation of the network: its interval, where it comes from, and how large it can be."""

    lower: Tensor  # (N, ...)
    upper: Tensor
    parents: tuple["Node", ...] = ()
    rule: Affine | Curve | Pool | None = None
    terms: Tensor | None = None  # bounds the sum of |products| behind each entry, for rounding
    ball: bool = False  # still the input ball itself, reshaped

    @property
    def largest(self) -> Tensor:
        """The greatest absolute value each entry can take."""
        return torch.maximum(self.lower.abs(), self.upper.abs())


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
        logits = self.run(start)
        if not isinstance(logits, Node):
            raise ValueError("the model's output does not depend on its input through known ops")
        return logits

    def keep(self, node: Node) -> Node:
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
        nodes = tuple(nodes_in((args, kwargs)))
        if not nodes:
            return op(*args, **kwargs)
        if key in SHAPES:
            return op(*fill(args, [n.lower for n in nodes]), **kwargs)
        if key in ACTIVATIONS:
            return self.bend(nodes[0], ACTIVATIONS[key])
        if key is nn.MaxPool2d or key is F.max_pool2d:
            return self.pool(nodes[0], op, args, kwargs)
        rule = affine_rule(key, op, args, kwargs, nodes)
        if rule is None:
            name = getattr(key, "__name__", key)
            raise ValueError(f"no certified bound is known for {name}; known are {KNOWN}")
        return self.affine(rule, nodes)

    def affine(self, rule: Affine, nodes: tuple[Node, ...]) -> Node:
        """Carry intervals through an affine op, rounded outward."""
        zeros = [torch.zeros_like(n.lower) for n in nodes]
        rule.offset, rule.pull = torch.func.vjp(rule.forward, *zeros)
        _, rule.pull_absolute = torch.func.vjp(rule.absolute, *zeros)
        if rule.reshapes and nodes[0].ball:
            lower, upper = (rule.forward(side) for side in (nodes[0].lower, nodes[0].upper))
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


def trace(model: nn.Module) -> fx.GraphModule:
    """Return the model as a graph of ops, or say why that cannot be done."""
    try:
        return fx.symbolic_trace(nn.Sequential(model))  # the root itself is never a leaf
    except Exception as error:  # fx raises many kinds
        raise ValueError(
            f"certified bounds need a model that torch.fx can trace; {type(model).__name__} "
            f"cannot be: {error}"
        ) from error


def affine_rule(key: Any, op: Any, args: tuple, kwargs: dict, nodes: tuple) -> Affine | None:
    """Return how an affine call acts on its tensors, or None when it is not known."""

    def forward(*tensors: Tensor) -> Tensor:
        values = iter(tensors)
        return op(*fill(args, values), **fill(kwargs, values))

    if key is nn.Linear:
        return Affine(forward, lambda r: F.linear(r, op.weight.abs()), op)
    if key in CONVOLUTIONS and op.padding_mode == "zeros":
        settings = (None, op.stride, op.padding, op.dilation, op.groups)
        return Affine(forward, lambda r: CONVOLUTIONS[key](r, op.weight.abs(), *settings), op)
    if key in (nn.BatchNorm1d, nn.BatchNorm2d) and op.running_var is not None:
        return Affine(forward, lambda r: r * batchnorm_scale(op, r.ndim).abs())
    if key in ARITHMETIC:
        return arithmetic_rule(ARITHMETIC[key], args, kwargs, nodes)
    if key is F.pad and not pads_zeros(*args[2:], **kwargs):
        return None
    if key is F.dropout:
        return None if kwargs.get("training") else Affine(lambda r: r, lambda r: r, reshapes=True)
    if key in RESHAPES or key in AVERAGES or key is F.pad:
        return Affine(forward, forward, reshapes=key in RESHAPES)
    return None


def pads_zeros(mode: str = "constant", value: float | None = None, **_: Any) -> bool:
    """Whether arguments of F.pad ask for zeros: anything else would be a constant or a copy."""
    return mode == "constant" and not value


def arithmetic_rule(
    op: Callable[..., Tensor], args: tuple, kwargs: dict, nodes: tuple
) -> Affine | None:
    """Return a + b, a - b, -a, or a times or over a constant, as an affine op."""
    if kwargs:
        return None
    constants = [torch.as_tensor(a).to(nodes[0].lower) for a in args if not isinstance(a, Node)]

    def forward(*tensors: Tensor) -> Tensor:
        return op(*fill(args, iter(tensors)))

    if op in (torch.add, torch.sub):
        return Affine(forward, lambda *radii: sum(radii, *[torch.zeros_like(c) for c in constants]))
    if op is torch.neg:
        return Affine(forward, lambda r: r.clone())
    if len(nodes) == 2 or not isinstance(args[0], Node) and op is torch.div:
        return None  # a product of two activations is not affine
    return Affine(forward, lambda r: op(r, constants[0].abs()))


def batchnorm_scale(module: Any, dims: int) -> Tensor:
    """Return weight / sqrt(var + eps), shaped to multiply (N, C, ...)."""
    scale = (module.running_var + module.eps).rsqrt()
    if module.weight is not None:
        scale = scale * module.weight
    return scale.view(1, -1, *[1] * (dims - 2))


def row_norms(module: Any, norm: Norm) -> Tensor:
    """Return the dual norm of each output's weights; zero padding only makes them smaller."""
    norms = dual_norm(module.weight.flatten(1), norm) * (1 + 1e-12)
    return norms.view(-1, *[1] * (module.weight.ndim - 2))


def pool_settings(op: Any, args: tuple, kwargs: dict) -> tuple[int, int, int]:
    """Return kernel, stride and padding of a square max-pooling, or say what is not supported."""
    if isinstance(op, nn.MaxPool2d):
        values = [op.kernel_size, op.stride, op.padding]
        plain = op.dilation == 1 and not op.ceil_mode and not op.return_indices
    else:
        named = dict(zip(("kernel_size", "stride", "padding"), args[1:], strict=False)) | kwargs
        values = [named.pop(k, None) for k in ("kernel_size", "stride", "padding")]
        plain = not any(v for k, v in named.items() if k != "dilation" or v != 1) and len(args) < 5
    kernel, stride, padding = (v[0] if isinstance(v, list | tuple) and len(set(v)) == 1 else v
                               for v in values)  # fmt: skip
    stride, padding = stride or kernel, padding or 0
    if not plain or not all(isinstance(v, int) for v in (kernel, stride, padding)):
        raise ValueError("certified max-pooling is square, undilated and without ceil_mode")
    return kernel, stride, padding


def nodes_in(value: Any) -> Iterator[Node]:
    """Yield the nodes inside nested arguments, in order."""
    found: list[Node] = []
    map_aggregate(value, lambda v: found.append(v) if isinstance(v, Node) else None)
    yield from found


def fill(value: Any, tensors: Any) -> Any:
    """Return nested arguments with each node replaced by the next tensor."""
    tensors = iter(tensors)
    return map_aggregate(value, lambda v: next(tensors) if isinstance(v, Node) else v)
