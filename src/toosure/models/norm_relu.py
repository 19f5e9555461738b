"""ReLU after BatchNorm, with or without a residual: torch's layers, or two fused kernels each way.

On a GPU torch's BatchNorm in bf16 takes a third of a ResNet-18 step, several times what reading
and writing the images takes. The fused kernels are Triton's; starting them costs the host more, so
that they pay where a step is replayed as a CUDA graph: `fused_norms` allows them there.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

NormReLU = Callable[[nn.BatchNorm2d, Tensor, Tensor | None], Tensor]
allowed: ContextVar[bool] = ContextVar("allowed", default=False)
HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
# The largest relative error of the fused kernels: a few roundings.
MAX_ERROR = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.02}


def norm_relu(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """Return relu(norm(x)), or relu(norm(x) + residual).

    >>> norm, x = nn.BatchNorm2d(2), torch.randn(4, 2, 3, 3)
    >>> bool((norm_relu(norm, x) == F.relu(nn.BatchNorm2d(2)(x))).all())
    True
    """
    # torch.compile fuses by itself, and can only trace this far.
    if not torch.compiler.is_compiling() and can_be_fused(norm, x, residual):
        from toosure.models.fused_norm import fused_norm_relu

        return fused_norm_relu(norm, x, residual)
    return plain_norm_relu(norm, x, residual)


def plain_norm_relu(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None) -> Tensor:
    """Run torch's layers."""
    out = norm(x)
    return F.relu(out if residual is None else out + residual)


@contextmanager
def fused_norms() -> Iterator[None]:
    """Inside, `norm_relu` runs as fused kernels wherever it can."""
    token = allowed.set(True)
    try:
        yield
    finally:
        allowed.reset(token)


def can_be_fused(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None = None) -> bool:
    """Whether the fused kernels may replace a layer: training on a GPU, without hooks.

    A layer that someone hooks or whose `forward` someone replaced is called as it is, and so is
    one inside a transform of torch.func or forward-mode differentiation.
    """
    return (
        allowed.get()
        and x.is_cuda
        and is_plain(norm)
        and x.dim() == 4
        and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and x.shape[1] < x.numel() < 2**31  # a variance needs two values; offsets have 31 bits
        and x.is_contiguous(memory_format=torch.channels_last)
        and (residual is None or (residual.shape, residual.dtype) == (x.shape, x.dtype))
        and not is_transformed()
        and triton_is_there()
        and kernels_agree(x.device, x.dtype)
    )


def is_plain(norm: nn.Module) -> bool:
    """Whether a layer is a BatchNorm that trains, as torch makes it."""
    return (
        type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and norm.weight.dtype == torch.float32
        and "forward" not in vars(norm)
        and not any(getattr(norm, f"_{name}_hooks") for name in HOOKS)
        and not any(getattr(torch_module, f"_global_{name}_hooks") for name in HOOKS)
    )


def is_transformed() -> bool:
    """Whether anything except plain autograd traces or transforms the pass."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


@cache
def triton_is_there() -> bool:
    return find_spec("triton") is not None


@cache
def kernels_agree(device: torch.device, dtype: torch.dtype) -> bool:
    """Try the kernels once on small images: whether they compute what torch does in float32.

    Where they do not, or Triton fails on this machine, a warning says so, and torch's layers run.
    """
    try:
        errors = [*kernel_errors(device, dtype, False), *kernel_errors(device, dtype, True)]
    except Exception as error:  # of Triton's compiler, of whatever kind
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    else:
        if all(error <= MAX_ERROR[dtype] for error in errors):  # false if one is NaN
            return True
        reason = f"relative errors of {', '.join(f'{error:.1e}' for error in errors)}"
    warnings.warn(
        f"fused kernels of BatchNorm are not used on {device} in {dtype}: {reason}", stacklevel=2
    )
    return False


def kernel_errors(device: torch.device, dtype: torch.dtype, with_residual: bool) -> list[float]:
    """Return the relative errors of output, gradients and running statistics."""
    from toosure.models.fused_norm import fused_norm_relu

    # Several tiles for each program, the last ones not full. No random numbers: the run needs them.
    shape = (500, 80, 6, 6)
    waves = torch.arange(2 * math.prod(shape), device=device).sin().view(2, *shape)
    x, residual = waves.to(dtype)
    x = (3 * x + 1).contiguous(memory_format=torch.channels_last)

    def results(function: NormReLU, own: torch.dtype) -> list[Tensor]:
        norm = nn.BatchNorm2d(80).to(device)
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(-1, 2, 80))
            norm.bias.copy_(torch.linspace(1, -1, 80))
        leaves = [x.to(own).requires_grad_(), norm.weight, norm.bias]
        if with_residual:
            leaves.append(residual.to(own).requires_grad_())
        out = function(norm, leaves[0], leaves[3] if with_residual else None)
        gradients = torch.autograd.grad(out, leaves, waves[0].to(own))
        return [out.detach(), *gradients, *norm.buffers()]

    with torch.autocast(device.type, enabled=False), torch.enable_grad():
        exact = results(plain_norm_relu, torch.float32)
        fused = results(fused_norm_relu, dtype)
    return [
        float((ours.double() - theirs.double()).norm() / theirs.double().norm())
        for ours, theirs in zip(fused, exact, strict=True)
    ]
