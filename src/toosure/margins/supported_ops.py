"""The ops that certified bounds support: what each computes, and what its absolute value computes.

A call in the traced network is a `key` (a type of module, a function or the name of a method), an
`op` to call, and its arguments, in which each activation is an `IntervalNode`.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.fx.node import Argument, map_aggregate
from torch.nn import functional as F

from toosure.margins.relaxations import Lines
from toosure.margins.robust import Norm, dual_norm

Op = Callable[..., Any]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Arguments = TypeVar("Arguments", Args, Kwargs)
Convolution = nn.Conv1d | nn.Conv2d
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d

CONVOLUTIONS: dict[object, Callable[..., Tensor]] = {nn.Conv1d: F.conv1d, nn.Conv2d: F.conv2d}
ACTIVATIONS: dict[object, str] = {
    **dict.fromkeys((nn.ReLU, F.relu, torch.relu, "relu"), "relu"),
    **dict.fromkeys((nn.Tanh, F.tanh, torch.tanh, "tanh"), "tanh"),
}

# Ops that move entries, and ops that sum them with coefficients >= 0 and no constant:
# each is its own absolute value.
RESHAPES: set[object] = {
    nn.Flatten,
    nn.Identity,
    nn.Unflatten,
    nn.Dropout,
    nn.Dropout2d,
    torch.flatten,
    torch.reshape,
    "flatten",
    "reshape",
    "view",
    "contiguous",
}
AVERAGES: set[object] = {
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.ZeroPad2d,
    F.avg_pool2d,
    F.adaptive_avg_pool2d,
    torch.mean,
    torch.sum,
    operator.getitem,
    "mean",
    "sum",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
}
ARITHMETIC: dict[object, Callable[..., Tensor]] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add"), torch.add),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub"), torch.sub),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul"), torch.mul),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div"), torch.div),
    **dict.fromkeys((operator.neg, torch.neg), torch.neg),
}
SHAPE_METHODS: set[object] = {"size", "dim"}
SHAPE_ATTRIBUTES = ("shape", "ndim", "dtype", "device")  # they do not hold the values themselves
KNOWN = (
    "Linear, Conv1d, Conv2d, Tanh, ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, Flatten, "
    "eval-mode BatchNorm and Dropout, additions, scalings, slices, zero padding and means"
)


@dataclass(eq=False)
class AffineRule:
    """An op that is affine in its tensors, x -> A x + b, and the op x -> |A| x."""

    forward: Callable[..., Tensor]
    absolute: Callable[..., Tensor]
    module: nn.Module | None = None  # a Linear or convolution: its norms are known more exactly
    reshapes: bool = False
    offset: Tensor = field(init=False)  # b, the op's value at zero
    pull: Callable[..., Any] = field(init=False)  # the transposed matrix
    pull_absolute: Callable[..., Any] = field(init=False)


@dataclass(eq=False)
class ActivationRule:
    """An activation function, enclosed by two lines on its input interval."""

    name: str
    lines: Lines


@dataclass(eq=False)
class MaxPoolRule:
    """Max-pooling: which element has the best lower bound, and whether it is sure to win."""

    kernel: int
    stride: int
    padding: int
    chosen: Tensor
    decided: Tensor


@dataclass(eq=False)
class IntervalNode:
    """An activation of the network: its interval, the op and parents it comes from."""

    lower: Tensor  # (N, ...)
    upper: Tensor
    parents: tuple["IntervalNode", ...] = ()
    rule: AffineRule | ActivationRule | MaxPoolRule | None = None
    # A bound of the sum of |products| behind each entry, for its rounding.
    terms: Tensor = field(default_factory=lambda: torch.zeros(()))
    ball: bool = False  # still the input ball itself, reshaped

    @property
    def largest(self) -> Tensor:
        """The greatest absolute value that each entry can take."""
        return torch.maximum(self.lower.abs(), self.upper.abs())


def affine_rule(
    key: object, op: Op, args: Args, kwargs: Kwargs, nodes: tuple[IntervalNode, ...]
) -> AffineRule | None:
    """Return how an affine call acts on its tensors, or None when it is not known.

    Modules are recognised by their exact type: a subclass may compute something else.
    """

    def forward(*tensors: Tensor) -> Tensor:
        return call_filled(op, args, kwargs, tensors)

    # Layers with weights
    if key is nn.Linear:
        assert isinstance(op, nn.Linear)
        return AffineRule(forward, lambda r: F.linear(r, op.weight.abs()), op)
    if key in CONVOLUTIONS:
        assert isinstance(op, Convolution)
        return convolution_rule(CONVOLUTIONS[key], op, forward)
    if key in (nn.BatchNorm1d, nn.BatchNorm2d):
        assert isinstance(op, BatchNorm)
        if op.running_var is None:
            return None
        return AffineRule(forward, lambda r: r * batchnorm_scale(op, r.ndim).abs())

    # Arithmetic, and ops that depend on their arguments
    if key in ARITHMETIC:
        return arithmetic_rule(ARITHMETIC[key], args, kwargs, nodes)
    if key is F.pad and not pads_zeros(*args[2:], **kwargs):
        return None
    if key is F.dropout:
        if kwargs.get("training"):
            return None
        return AffineRule(lambda r: r, lambda r: r, reshapes=True)
    if key is torch.cat:  # constants beside the activations do not move
        still = map_aggregate((args, kwargs), zero_constants)
        return AffineRule(forward, lambda *radii: call_filled(op, *still, radii))
    if key in (nn.AvgPool2d, F.avg_pool2d) and averages_negatively(op, args, kwargs):
        return None

    if key in RESHAPES or key in AVERAGES or key is F.pad:
        return AffineRule(forward, forward, reshapes=key in RESHAPES)
    return None


def convolution_rule(
    convolve: Callable[..., Tensor], op: Convolution, forward: Callable[..., Tensor]
) -> AffineRule | None:
    """Return the rule of a convolution; other paddings than zeros are not known."""
    if op.padding_mode != "zeros":
        return None
    settings = (None, op.stride, op.padding, op.dilation, op.groups)
    return AffineRule(forward, lambda r: convolve(r, op.weight.abs(), *settings), op)


def pads_zeros(mode: str = "constant", value: float | None = None, **_: object) -> bool:
    """Whether arguments of F.pad ask for zeros, not for another constant or a copy."""
    return mode == "constant" and not value


def zero_constants(value: Argument) -> Argument:
    """Return zeros for a tensor, and anything else unchanged."""
    return torch.zeros_like(value) if isinstance(value, Tensor) else value


def averages_negatively(op: Op, args: Args, kwargs: Kwargs) -> bool:
    """Whether an average pooling divides by a negative number: |op| is then not op."""
    divisor = args[6] if len(args) > 6 else kwargs.get("divisor_override")
    return bool((getattr(op, "divisor_override", divisor) or 1) < 0)


def arithmetic_rule(
    op: Callable[..., Tensor], args: Args, kwargs: Kwargs, nodes: tuple[IntervalNode, ...]
) -> AffineRule | None:
    """Return a + b, a - b, -a, or a times or over a constant, as an affine op."""
    if kwargs:
        return None
    like = nodes[0].lower  # a Python number must not pass through float32
    constants = [
        torch.as_tensor(a, dtype=like.dtype, device=like.device)
        for a in args
        if not isinstance(a, IntervalNode)
    ]

    def forward(*tensors: Tensor) -> Tensor:
        return op(*fill(args, tensors))

    if op in (torch.add, torch.sub):
        zero = torch.zeros_like(constants[0]) if constants else torch.zeros_like(nodes[0].lower)
        return AffineRule(forward, lambda *radii: sum(radii, zero))
    if op is torch.neg:
        return AffineRule(forward, lambda r: r.clone())

    # A product of two activations is not affine, nor is a constant over an activation.
    if len(nodes) == 2 or (op is torch.div and not isinstance(args[0], IntervalNode)):
        return None
    return AffineRule(forward, lambda r: op(r, constants[0].abs()))


def batchnorm_scale(module: BatchNorm, dims: int) -> Tensor:
    """Return weight / sqrt(var + eps), shaped to multiply (N, C, ...)."""
    assert module.running_var is not None
    scale = (module.running_var + module.eps).rsqrt()
    if module.weight is not None:
        scale = scale * module.weight
    return scale.view(1, -1, *[1] * (dims - 2))


def row_norms(module: nn.Module, norm: Norm) -> Tensor:
    """Return the dual norm of each output's weights; zero padding only makes them smaller."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    norms = dual_norm(weight.flatten(1), norm) * (1 + 1e-12)
    return norms.view(-1, *[1] * (weight.ndim - 2))


def pool_settings(op: Op, args: Args, kwargs: Kwargs) -> tuple[int, int, int]:
    """Return kernel, stride and padding of a square max-pooling; raise for any other."""
    names = ("kernel_size", "stride", "padding")
    if isinstance(op, nn.MaxPool2d):
        values = [op.kernel_size, op.stride, op.padding]
        plain = op.dilation == 1 and not op.ceil_mode and not op.return_indices
    else:
        named = dict(zip(names, args[1:], strict=False)) | kwargs
        values = [named.pop(name, None) for name in names]
        undilated = named.pop("dilation", 1) in (None, 0, 1)
        plain = undilated and not any(named.values()) and len(args) < 5

    sides = [set(v) if isinstance(v, list | tuple) else {v} for v in values]
    if not plain or any(len(side) != 1 for side in sides):
        raise ValueError("certified max-pooling is square, undilated and without ceil_mode")
    kernel, stride, padding = (side.pop() for side in sides)
    return kernel, stride or kernel, padding or 0


def nodes_in(value: tuple[Args, Kwargs]) -> tuple[IntervalNode, ...]:
    """Return the nodes inside nested arguments, in order."""
    nodes: list[IntervalNode] = []
    map_aggregate(value, lambda v: nodes.append(v) if isinstance(v, IntervalNode) else None)
    return tuple(nodes)


def call_filled(op: Op, args: Args, kwargs: Kwargs, tensors: Iterable[Tensor]) -> Tensor:
    """Call an op with each node of its arguments replaced by the next tensor."""
    values = iter(tensors)
    result: Tensor = op(*fill(args, values), **fill(kwargs, values))
    return result


def fill(value: Arguments, tensors: Iterable[Tensor]) -> Arguments:
    """Return nested arguments with each node replaced by the next tensor."""
    values: Iterator[Tensor] = iter(tensors)
    return map_aggregate(value, lambda v: next(values) if isinstance(v, IntervalNode) else v)
