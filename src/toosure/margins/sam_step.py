"""One SAM step on one batch: the logits before and after it, and kappa_min along its path."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from toosure.curvature import kappa_min
from toosure.curvature.products.precision import double_differentiable
from toosure.margins.margins import deciding_size, soft_margin

Mode = Literal["eval", "train"]


class NoStep(ValueError):
    """Say that SAM takes no step, because the gradient is zero."""


@dataclass(frozen=True)
class SamStep:
    """Hold what one SAM step does to p_y, as logit(p_y) so that 1 - p_y never cancels."""

    rho: float
    gradient_norm: float
    kappa: tuple[float, ...]  # kappa_min at points from theta to the perturbed point
    converged: bool
    logit: Tensor  # (N,) float64: logit(p_y) is the soft margin at T = 1
    logit_perturbed: Tensor
    rounding: float  # absolute error allowed in a loss

    @property
    def mean_logit(self) -> Tensor:
        return mean_of(self.logit)

    @property
    def mean_logit_perturbed(self) -> Tensor:
        return mean_of(self.logit_perturbed)


def mean_of(logit: Tensor) -> Tensor:
    """Return logit(p) of the geometric mean p = (prod_i p_i)^(1/m) = exp(-L), from logit(p_i)."""
    loss = -F.logsigmoid(logit).mean()
    return -loss - torch.log(-torch.expm1(-loss))


def take_step(
    model: nn.Module, x: Tensor, y: Tensor, rho: float, points: int, rtol: float, mode: Mode
) -> SamStep:
    """Measure the batch at theta and at theta + rho g / |g|, and kappa_min between them."""
    free = {k: p.detach().requires_grad_() for k, p in model.named_parameters() if p.requires_grad}
    if not free:
        raise ValueError("the model has no parameters that require grad: SAM takes no step")

    with double_differentiable():
        logits = logits_at(model, free, x, mode)
        loss = F.cross_entropy(logits, y)
        gradients = torch.autograd.grad(
            loss, list(free.values()), allow_unused=True, materialize_grads=True
        )
    flat = torch.cat([g.flatten() for g in gradients])
    norm = float(flat.norm())
    if norm == 0:
        raise NoStep("the gradient is zero: SAM takes no step, and the lemmas ask for one")

    pairs = zip(free.items(), gradients, strict=True)
    moved = {name: (p + rho * g / norm).detach() for (name, p), g in pairs}
    with double_differentiable():
        perturbed = logits_at(model, moved, x, mode).detach()
    path = kappa_min(
        model,
        (x, y),
        rtol=rtol,
        perturbation=rho * flat / norm,
        points=points,
        mode=mode,
        chunk=len(x),
    )

    size = float(deciding_size(logits.detach(), y))
    return SamStep(
        rho=rho,
        gradient_norm=norm,
        kappa=tuple(path.value.tolist()),
        converged=path.converged,
        logit=soft_margin(logits.detach().double(), y),
        logit_perturbed=soft_margin(perturbed.double(), y),
        rounding=64 * torch.finfo(logits.dtype).eps * (1 + size),
    )


def logits_at(model: nn.Module, parameters: dict[str, Tensor], x: Tensor, mode: Mode) -> Tensor:
    """Return the logits with other parameters, by the random draws that kappa_min uses."""
    # A pass in train mode must not change the running statistics: it gets copies of the buffers.
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with holding_mode(model, mode):
        logits: Tensor = functional_call(model, parameters | buffers, (x,))
    return logits


@contextmanager
def holding_mode(model: nn.Module, mode: Mode) -> Iterator[None]:
    """Hold the model in a mode with fixed random draws, then restore everything."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng(enabled=mode == "train"):
        if mode == "train":
            torch.manual_seed(0)  # as every pass of toosure.curvature does
        model.train(mode == "train")
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
