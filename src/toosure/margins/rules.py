"""The ops that certified bounds know: what each does, and what the absolute value of it does."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate
from torch.nn import functional as F

from toosure.margins.relaxations import Lines
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
            F.adaptive_avg_pool2d, operator.getitem, "mean", "sum", "permute",
            "transpose", "squeeze", "unsqueeze"}  # fmt: skip
ARITHMETIC: dict[Any, Callable[..., Tensor]] = {
    operator.add: torch.add, operator.iadd: torch.add, torch.add: torch.add, "add": torch.add,
    operator.sub: torch.sub, operator.isub: torch.sub, torch.sub: torch.sub, "sub": torch.sub,
    operator.mul: torch.mul, operator.imul: torch.mul, torch.mul: torch.mul, "mul": torch.mul,
    operator.truediv: torch.div, operator.itruediv: torch.div, torch.div: torch.div,
    "div": torch.div,
    operator.neg: torch.neg, torch.neg: torch.neg,
}  # fmt: skip
SHAPES = {"size", "dim"}
FACTS = ("shape", "ndim", "dtype", "device")  # attributes that do not hold the values themselves
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
    terms: Tensor = field(
        default_factory=lambda: torch.zeros(())
    )  # bounds the sum of |products| behind each entry, for rounding
    ball: bool = False  # still the input ball itself, reshaped

    @property
    def largest(self) -> Tensor:
        """The greatest absolute value each entry can take."""
        return torch.maximum(self.lower.abs(), self.upper.abs())


def affine_rule(key: Any, op: Any, args: tuple, kwargs: dict, nodes: tuple) -> Affine | None:
    """Return how an affine call acts on its tensors, or None when it is not known."""

    def forward(*tensors: Tensor) -> Tensor:
        return call_filled(op, args, kwargs, tensors)

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
    if key is torch.cat:  # constants beside the activations do not move
        still = map_aggregate((args, kwargs), zero_constants)
        return Affine(forward, lambda *radii: call_filled(op, *still, radii))
    if key in (nn.AvgPool2d, F.avg_pool2d) and averages_negatively(op, args, kwargs):
        return None
    if key in RESHAPES or key in AVERAGES or key is F.pad:
        return Affine(forward, forward, reshapes=key in RESHAPES)
    return None


def pads_zeros(mode: str = "constant", value: float | None = None, **_: Any) -> bool:
    """Whether arguments of F.pad ask for zeros: anything else would be a constant or a copy."""
    return mode == "constant" and not value


def zero_constants(value: Any) -> Any:
    """Return zeros for a tensor, and anything else as it is."""
    return torch.zeros_like(value) if isinstance(value, Tensor) else value


def averages_negatively(op: Any, args: tuple, kwargs: dict) -> bool:
    """Whether an average pooling divides by a negative number: |op| is then not op."""
    divisor = args[6] if len(args) > 6 else kwargs.get("divisor_override")
    return (getattr(op, "divisor_override", divisor) or 1) < 0


def arithmetic_rule(
    op: Callable[..., Tensor], args: tuple, kwargs: dict, nodes: tuple
) -> Affine | None:
    """Return a + b, a - b, -a, or a times or over a constant, as an affine op."""
    if kwargs:
        return None
    like = nodes[0].lower  # a Python number must not pass through float32
    constants = [
        torch.as_tensor(a, dtype=like.dtype, device=like.device)
        for a in args
        if not isinstance(a, Node)
    ]

    def forward(*tensors: Tensor) -> Tensor:
        return op(*fill(args, iter(tensors)))

    if op in (torch.add, torch.sub):
        zero = torch.zeros_like(constants[0]) if constants else torch.zeros_like(nodes[0].lower)
        return Affine(forward, lambda *radii: sum(radii, zero))
    if op is torch.neg:
        return Affine(forward, lambda r: r.clone())
    if len(nodes) == 2 or (op is torch.div and not isinstance(args[0], Node)):
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
    sides = [set(v) if isinstance(v, list | tuple) else {v} for v in values]
    if not plain or any(len(side) != 1 for side in sides):
        raise ValueError("certified max-pooling is square, undilated and without ceil_mode")
    kernel, stride, padding = (side.pop() for side in sides)
    return kernel, stride or kernel, padding or 0


def nodes_in(value: Any) -> tuple[Node, ...]:
    """Return the nodes inside nested arguments, in order."""
    found: list[Node] = []
    map_aggregate(value, lambda v: found.append(v) if isinstance(v, Node) else None)
    return tuple(found)


def call_filled(op: Callable[..., Tensor], args: tuple, kwargs: dict, tensors: Any) -> Tensor:
    """Call an op with each node of its arguments replaced by the next tensor."""
    values = iter(tensors)
    return op(*fill(args, values), **fill(kwargs, values))


def fill(value: Any, tensors: Any) -> Any:
    """Return nested arguments with each node replaced by the next tensor."""
    tensors = iter(tensors)
    return map_aggregate(value, lambda v: next(tensors) if isinstance(v, Node) else v)
