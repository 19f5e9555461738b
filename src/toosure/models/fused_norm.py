"""Autograd around the fused kernels of BatchNorm and ReLU, and how they are started."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models import norm_kernels as kernels

TILE = 4096  # values of an image that a program holds
MAX_CHANNELS = 64  # of a tile
MAX_PROGRAMS = 528  # that sum rows: some for each of a GPU's processors
JOINED = 128  # programs whose sums are added at once, for so many channels:
JOINED_CHANNELS = 8


def fused_norm_relu(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None) -> Tensor:
    """Run the fused kernels, which also move the layer's running statistics."""
    if residual is not None:
        residual = residual.contiguous(memory_format=torch.channels_last)
    out: Tensor = FusedNormReLU.apply(x, norm.weight, norm.bias, residual, norm)
    return out


class FusedNormReLU(torch.autograd.Function):
    """Run both passes as kernels; a gradient that is differentiated again is taken by torch."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        norm: nn.BatchNorm2d,
    ) -> Tensor:
        launch = Launch(x)
        with torch.cuda.device_of(x):
            moments = launch.moments(x, weight, bias, norm)  # mean, inverse, scale, shift
            out = launch.rectified(x, residual, moments)

        ctx.eps = norm.eps
        ctx.adds = residual is not None
        kept = (residual, out) if ctx.adds else (None, None)
        ctx.save_for_backward(x, weight, bias, moments, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, moments, residual, out = ctx.saved_tensors
        gradient = gradients[0].to(x.dtype).contiguous(memory_format=torch.channels_last)
        if torch.is_grad_enabled():
            return *torch_gradients(gradient, x, weight, bias, residual, ctx.eps), None

        launch = Launch(x)
        with torch.cuda.device_of(x):
            dx, dweight, dbias, dresidual = launch.gradients(gradient, x, out, moments)
        return dx, dweight, dbias, dresidual, None


def torch_gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    eps: float,
) -> tuple[Tensor | None, ...]:
    """Return the gradients by torch's own operations, with a graph to differentiate them again."""
    # Of views: what leads from one input to another, such as from the residual to x, and other
    # uses of the same weight, are not this layer's.
    views = [None if t is None else t.view_as(t) for t in (x, weight, bias, residual)]
    x_view, weight_view, bias_view, residual_view = views
    assert x_view is not None
    out = F.batch_norm(x_view, None, None, weight_view, bias_view, training=True, eps=eps)
    out = F.relu(out if residual_view is None else out + residual_view)

    wanted = [view for view in views if view is not None and view.requires_grad]
    gradients = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
    return tuple(
        next(gradients) if view is not None and view.requires_grad else None for view in views
    )


class Launch:
    """The kernels for images of one shape: how many programs, and how large their tiles are."""

    def __init__(self, x: Tensor) -> None:
        self.channels = x.shape[1]
        self.rows = x.numel() // self.channels

        # A tile is a power of two each way.
        self.tile_channels = min(MAX_CHANNELS, max(2, 1 << (self.channels - 1).bit_length()))
        self.tile_rows = TILE // self.tile_channels
        self.columns = -(-self.channels // self.tile_channels)  # tiles side by side
        self.tiles = -(-self.rows // self.tile_rows)

        programs = min(self.tiles, max(1, MAX_PROGRAMS // self.columns))
        self.per_program = -(-self.tiles // programs) * self.tile_rows  # rows
        self.programs = -(-self.rows // self.per_program)
        self.tile = {"ROWS": self.tile_rows, "CHANNELS": self.tile_channels, "num_warps": 8}
        self.joined = {"PROGRAMS": JOINED, "CHANNELS": JOINED_CHANNELS, "num_warps": 4}
        self.joining = (-(-self.channels // JOINED_CHANNELS),)

    def sums(self, x: Tensor) -> Tensor:
        """Return memory for two sums per program and channel."""
        return x.new_empty(2, self.programs, self.channels, dtype=torch.float32)

    def moments(self, x: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        """Return mean, inverse deviation, scale and shift per channel; move the statistics."""
        means, squares = self.sums(x)
        kernels.sum_rows[self.programs, self.columns](
            x, means, squares, self.rows, self.channels, self.per_program, **self.tile
        )

        moments = x.new_empty(4, self.channels, dtype=torch.float32)
        mean, inverse, scale, shift = moments
        assert norm.num_batches_tracked is not None
        statistics = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
        counters = norm.num_batches_tracked.numel()
        kernels.join_moments[self.joining](
            *(means, squares, weight, bias, *statistics, mean, scale, inverse, shift),
            *(self.rows, self.channels, self.per_program, self.programs),
            *(norm.momentum, norm.eps, counters),
            COUNTERS=1 << (counters - 1).bit_length(),
            **self.joined,
        )
        return moments

    def rectified(self, x: Tensor, residual: Tensor | None, moments: Tensor) -> Tensor:
        """Return relu(scale x + shift + residual)."""
        out = torch.empty_like(x)
        _, _, scale, shift = moments
        added = x if residual is None else residual
        kernels.scale_and_rectify[self.tiles, self.columns](
            *(x, added, out, scale, shift, self.rows, self.channels),
            ADD=residual is not None,
            **self.tile,
        )
        return out

    def gradients(
        self, gradient: Tensor, x: Tensor, out: Tensor | None, moments: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the gradients of x, weight, bias and, where `out` is kept, of the residual."""
        adds = out is not None
        sums, products = self.sums(x)
        before_relu = torch.empty_like(x) if adds else None
        kernels.sum_gradients[self.programs, self.columns](
            *(gradient, x, out if adds else x, before_relu if adds else x, *moments),
            *(sums, products, self.rows, self.channels, self.per_program),
            ADD=adds,
            **self.tile,
        )

        dweight, dbias = x.new_empty(2, self.channels, dtype=torch.float32)
        kernels.join_gradients[self.joining](
            *(sums, products, dweight, dbias, self.channels, self.programs), **self.joined
        )

        dx = torch.empty_like(x)
        kernels.input_gradient[self.tiles, self.columns](
            *(gradient if before_relu is None else before_relu, x, dx, *moments),
            *(dweight, dbias, self.rows, self.channels),
            RECTIFIED=adds,
            **self.tile,
        )
        return dx, dweight, dbias, before_relu
