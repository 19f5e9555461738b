"""Precision and kernels while a model is differentiated: no autocast, no TF32, plain attention."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def double_differentiable(exact: bool = True) -> Iterator[None]:
    """Enable gradients, disable autocast, and use attention kernels with second derivatives.

    With `exact`, float32 products are not rounded to TF32 either.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))

        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_no_fused_attention())
        if exact:
            stack.enter_context(tensor_cores(allowed=False))
        yield


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute in full float32 on a GPU, whatever the caller allows, and without gradients."""
    with torch.no_grad(), torch.autocast("cuda", enabled=False), tensor_cores(allowed=False):
        yield


@contextmanager
def tensor_cores(allowed: bool) -> Iterator[None]:
    """Allow or forbid that products of float32 matrices round to TF32 (1 in 2,000)."""
    matmul = torch.backends.cuda.matmul
    cudnn = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    if before == (allowed, allowed):
        yield
        return

    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


@contextmanager
def _no_fused_attention() -> Iterator[None]:
    """Disable the fused attention layers, which have no forward-mode derivatives."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
