"""Forward-mode differentiation with dual numbers."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode


@contextmanager
def dual_numbers() -> Iterator[None]:
    """Open a level of forward-mode differentiation, without torch's internal warnings."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        with forward_ad.dual_level():
            yield


def make_duals(values: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor]:
    """Pair every value with its tangent."""
    return [forward_ad.make_dual(v, t) for v, t in zip(values, tangents, strict=True)]


def tangent_of(value: Tensor) -> Tensor:
    """Return the tangent of a dual tensor: zeros if no input with a tangent reaches it."""
    tangent = forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(value) if tangent is None else tangent


Functions = Mapping[Callable[..., object], Callable[..., Tensor]]


class Composed(TorchFunctionMode):
    """Inside, replace functions of torch that lack a derivative by compositions of others."""

    def __init__(self, functions: Functions) -> None:
        super().__init__()
        self.functions = functions

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Iterable[type],
        arguments: Sequence[object] = (),
        options: Mapping[str, object] | None = None,
    ) -> object:
        composed = self.functions.get(function)
        if composed is not None:
            return composed(*arguments, **(options or {}))
        return function(*arguments, **(options or {}))


def _silu(input: Tensor, inplace: bool = False) -> Tensor:
    return input * torch.sigmoid(input)


def _mish(input: Tensor, inplace: bool = False) -> Tensor:
    return input * torch.tanh(F.softplus(input))


# They lack a forward derivative of their backward pass.
ACTIVATIONS: Functions = {F.silu: _silu, F.mish: _mish}


@contextmanager
def composed_activations() -> Iterator[None]:
    """Inside, SiLU is x sigmoid(x) and Mish is x tanh(softplus(x)), for second derivatives."""
    with Composed(ACTIVATIONS):
        yield
