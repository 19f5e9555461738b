"""Forward-mode differentiation with dual numbers."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad


@contextmanager
def dual_numbers() -> Iterator[None]:
    """Open a level of forward-mode differentiation, without the warnings of torch's own parts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        with forward_ad.dual_level():
            yield


def make_duals(values: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor]:
    """Pair every value with its tangent."""
    return [forward_ad.make_dual(v, t) for v, t in zip(values, tangents, strict=True)]


def tangent_of(value: Tensor) -> Tensor:
    """Return the tangent of a dual tensor: zeros where no input with a tangent reaches it."""
    tangent = forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(value) if tangent is None else tangent
