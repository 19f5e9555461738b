"""How numbers are computed while a model is read: precision, kernels, dual numbers."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def dual_numbers() -> Iterator[None]:
    """Forward-mode differentiation; torch's first use of it warns about its own parts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        with forward_ad.dual_level():
            yield


def made_dual(values: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor]:
    return [forward_ad.make_dual(v, t) for v, t in zip(values, tangents, strict=True)]


def tangent_of(value: Tensor) -> Tensor:
    """The tangent of a dual tensor; zeros where nothing moved it."""
    tangent = forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(value) if tangent is None else tangent


@contextmanager
def double_differentiable(exact: bool = True) -> Iterator[None]:
    """Plain float arithmetic, grad on, and attention kernels that have second derivatives.

    `exact` forbids TF32, too.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_no_fast_attention())
        if exact:
            stack.enter_context(tensor_cores(allowed=False))
        yield


@contextmanager
def plainly() -> Iterator[None]:
    """Plain float arithmetic on a GPU, whatever the caller allows; no gradients."""
    with torch.no_grad(), torch.autocast("cuda", enabled=False), tensor_cores(allowed=False):
        yield


@contextmanager
def _no_fast_attention() -> Iterator[None]:
    """No fused attention layers: they have no derivatives of the forward kind."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def tensor_cores(allowed: bool) -> Iterator[None]:
    """Let products of float32 matrices round to TF32 (1 in 2,000), or forbid it."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    if before == (allowed, allowed):
        yield
        return
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
