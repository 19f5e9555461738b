"""Penalties on the input gradient of a margin, trained by first-order passes only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _BatchNorm

from toosure.curvature.products.forward_mode import dual_numbers, make_duals
from toosure.curvature.products.precision import double_differentiable
from toosure.objectives.attack import input_gradient
from toosure.objectives.network import statistics_still, uncompiled
from toosure.processes import Sharded, rows_of_all
from toosure.processes.whole_batch import update_running_statistics

Margin = Callable[[Tensor], Tensor]  # logits (N, C) -> margins (N,)
Penalty = Callable[[Tensor, Tensor], Tensor]  # margins (N,), input gradient (N, ...) -> ()


class InputGradientPenalty:
    """Compute the logits and penalty(m, g), g the gradient of sum m by the inputs.

    Differentiating g by the weights needs second derivatives, which are slow for convolutions:
    their kernels become as large as the image. But dP/dtheta through g is d/dtheta (u . g) with
    u = dP/dg held fixed, and u . g is the slope of sum m along u: one pass of dual numbers, and an
    ordinary pass back through it. That takes half the time on a GPU and gains nothing on a CPU,
    where g is differentiated twice. So it is for a model on which the two differ (it draws at
    random, or a layer does not know dual numbers); the first call compares them. A compiled model
    is run uncompiled.
    """

    def __init__(self) -> None:
        self.dual: bool | None = None  # whether dual numbers are used; None before the first call

    def __call__(
        self, model: nn.Module, x: Tensor, margin: Margin, penalty: Penalty
    ) -> tuple[Tensor, Tensor]:
        model = uncompiled(model)
        x = x.detach()
        if self.dual is None:
            with double_differentiable():
                agree = x.is_cuda and ways_agree(model, x, margin)
            # All processes of a step must go the same way.
            answers = rows_of_all(torch.tensor([int(agree)], device=x.device))
            self.dual = bool(answers.all())

        compute = penalty_along if self.dual else penalty_twice
        with double_differentiable(exact=False):  # no autocast: second derivatives need float32
            return compute(model, x, margin, penalty)


def penalty_twice(
    model: nn.Module, x: Tensor, margin: Margin, penalty: Penalty
) -> tuple[Tensor, Tensor]:
    """Differentiate the input gradient itself: the plain formula."""
    x = x.detach().requires_grad_()
    logits = model(x)
    m = margin(logits)
    return logits, penalty(m, input_gradient(m, x))


def penalty_along(
    model: nn.Module, x: Tensor, margin: Margin, penalty: Penalty
) -> tuple[Tensor, Tensor]:
    """Differentiate the slope along u = dP/dg instead."""
    point = x.detach().requires_grad_()
    with statistics_still(model):
        m = margin(model(point))
    (g,) = torch.autograd.grad(m.sum(), point)
    g.requires_grad_()
    (u,) = torch.autograd.grad(penalty(m.detach(), g), g)

    with dual_numbers(), elementary_batch_norm(model):
        logits, tangent = forward_ad.unpack_dual(model(*make_duals([x], [u])))
    m = margin(logits)
    (by_logits,) = torch.autograd.grad(m.sum(), logits, create_graph=True)  # (N, C)
    slope = (by_logits * tangent).sum()  # u . g

    # The slope adds its gradient and not its value, which the penalty has already.
    return logits, penalty(m, g.detach()) + (slope - slope.detach())


def ways_agree(model: nn.Module, x: Tensor, margin: Margin) -> bool:
    """Whether both ways give the same gradient on this model."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    devices = [x.device] if x.device.type == "cuda" else []

    gradients = []
    with torch.random.fork_rng(devices), statistics_still(model):
        for way in (penalty_along, penalty_twice):
            try:
                _, roughness = way(model, x, margin, lambda _, g: g.square().sum() / len(x))
                parts = torch.autograd.grad(roughness, parameters, allow_unused=True)
            except (NotImplementedError, RuntimeError):  # a layer without a rule for dual numbers
                return False
            flat = torch.cat([part.reshape(-1) for part in parts if part is not None])
            gradients.append(model.summed(flat) if isinstance(model, Sharded) else flat)

    fast, slow = gradients
    return fast.shape == slow.shape and bool((fast - slow).norm() <= 1e-2 * slow.norm())


@contextmanager
def elementary_batch_norm(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm on batch statistics is written out in sums and products.

    Torch's rule for dual numbers treats the mean and variance of the batch as constants in the
    pass back.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training]
    for layer in layers:
        layer.forward = partial(batch_norm, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def batch_norm(layer: _BatchNorm, x: Tensor) -> Tensor:
    """Normalise by the batch, and move the running statistics as the layer would."""
    over = [d for d in range(x.ndim) if d != 1]
    variance, mean = torch.var_mean(x, over, correction=0)  # (C,)

    scale = torch.rsqrt(variance + layer.eps)
    if layer.weight is not None:
        scale = scale * layer.weight
    shift = -mean * scale
    if layer.bias is not None:
        shift = shift + layer.bias

    if layer.track_running_stats:
        count = x.numel() // x.shape[1]
        update_running_statistics(layer, mean, variance * (count / max(count - 1, 1)))

    shape = [1, -1, *[1] * (x.ndim - 2)]
    return x * scale.view(shape) + shift.view(shape)
