"""Robust margins by gradients: searched in the ball (attacked), and first order (linearised)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from toosure.eval_mode import evaluating
from toosure.margins.margins import margin_rows, true_margin
from toosure.margins.robust import (
    Norm,
    RobustMargin,
    check_data,
    check_radius,
    dtype_of,
    dual_norm,
    float64_copy,
    norm_of,
    over_chunks,
)


def attacked_margin(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm = "linf",
    *,
    steps: int = 20,
    restarts: int = 2,
    seed: int = 0,
    chunk: int = 500,
) -> RobustMargin:
    r"""Search the ball for a small margin: an upper bound of inf_{|d| <= eps} m(x + d, y).

    Projected descent on the true margin (sign steps for linf, unit steps for l2, each
    2.5 eps / steps long): the first start is x itself, the others are random, and the smallest
    margin met anywhere counts. The search runs in the model's dtype; the margin at the point
    found is computed in float64, so that it is one the network really has. Inputs are not clipped
    to a range of pixels. Reference: Madry et al. (2018), arXiv 1706.06083.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> attacked_margin(model, torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 0.1).values
    tensor([0.8000], dtype=torch.float64)
    """
    margin, _ = attack(
        model, x, y, eps, norm, steps=steps, restarts=restarts, seed=seed, chunk=chunk
    )
    return margin


def attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm,
    *,
    steps: int,
    restarts: int,
    seed: int,
    chunk: int,
) -> tuple[RobustMargin, Tensor]:
    """Return `attacked_margin` and the clean margins in float64, (N,), from the same passes."""
    check_radius(eps, norm)
    x, y = check_data(x, y)
    if steps < 1 or restarts < 1:
        raise ValueError(f"steps and restarts must be at least 1; got {steps} and {restarts}")

    generator = torch.Generator().manual_seed(seed)
    exact = float64_copy(model)

    def rows(a: Tensor, b: Tensor) -> Tensor:
        with torch.no_grad():
            clean = true_margin(exact(a.double()), b)  # checks the labels, too
        shift = descend(model, a, b, eps, norm, steps, restarts, generator)

        # a + shift is rounded: a radius smaller by that rounding keeps the sum in the ball.
        a = a.double()
        radius = eps - 2.0**-51 * (norm_of(a, norm) + eps)
        shift = project(shift.double(), rows_like(radius.clamp_min(0.0), a), norm)
        with torch.no_grad():
            shifted = true_margin(exact(a + shift), b)
        return torch.stack([torch.minimum(clean, shifted), clean], 1)

    with evaluating(model):
        values, clean = over_chunks(rows, model, x, y, chunk).unbind(1)
    return RobustMargin(values, "attacked", norm, eps, "above"), clean


def descend(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm,
    steps: int,
    restarts: int,
    generator: torch.Generator,
) -> Tensor:
    """Return, for each sample, the shift of smallest margin met on `restarts` descents."""
    x = x.to(dtype_of(model, x))
    best_shift = torch.zeros_like(x)
    best = torch.full(x.shape[:1], torch.inf, dtype=x.dtype, device=x.device)

    def take_better(margins: Tensor, shift: Tensor) -> None:
        nonlocal best, best_shift
        better = margins < best
        best = torch.where(better, margins, best)
        best_shift = torch.where(rows_like(better, shift), shift, best_shift)

    for restart in range(restarts):
        # The first descent starts at x itself.
        shift = random_shift(x, eps, norm, generator) if restart else torch.zeros_like(x)
        for _ in range(steps):
            margins, gradient = margin_gradient(model, x + shift, y)
            take_better(margins, shift)
            shift = project(shift - 2.5 * eps / steps * unit(gradient, norm), eps, norm)

        with torch.no_grad():
            take_better(margin_rows(model(x + shift), y), shift)
    return best_shift


def margin_gradient(
    model: nn.Module, x: Tensor, y: Tensor, margin: Callable[..., Tensor] = margin_rows
) -> tuple[Tensor, Tensor]:
    """Return the true margins, (N,), and their gradients with respect to the inputs."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        margins = margin(model(x), y)
        (gradient,) = torch.autograd.grad(margins.sum(), x)
    return margins.detach(), gradient


def rows_like(values: Tensor, other: Tensor) -> Tensor:
    """Return (N,) values shaped to broadcast against (N, ...)."""
    return values.view(-1, *[1] * (other.ndim - 1))


def unit(gradient: Tensor, norm: Norm) -> Tensor:
    """Return the steepest direction of length one in the norm of the ball."""
    if norm == "linf":
        return gradient.sign()
    length = torch.linalg.vector_norm(gradient.flatten(1), dim=1).clamp_min(1e-30)
    return gradient / rows_like(length, gradient)


def project(shift: Tensor, eps: float | Tensor, norm: Norm) -> Tensor:
    """Return the nearest shift inside the ball; `eps` may be one radius per sample, (N, 1, ...)."""
    if norm == "linf":
        return shift.clamp(-eps, eps)  # type: ignore[arg-type]  # two floats or two tensors
    length = torch.linalg.vector_norm(shift.flatten(1), dim=1).clamp_min(1e-30)
    inside = 1 - 8 * torch.finfo(shift.dtype).eps  # rounding must not move it outside
    return shift * (eps * inside / rows_like(length, shift)).clamp_max(1.0)


def random_shift(x: Tensor, eps: float, norm: Norm, generator: torch.Generator) -> Tensor:
    """Draw uniformly from the linf ball, or a random direction and radius for l2."""
    if norm == "linf":
        return (torch.rand(x.shape, generator=generator) * 2 - 1).mul(eps).to(x)
    noise = torch.randn(x.shape, generator=generator).to(x)
    radius = torch.rand(len(x), generator=generator).to(x)
    return unit(noise, norm) * rows_like(radius * eps, x)


def linearised_margin(
    model: nn.Module, x: Tensor, y: Tensor, eps: float, norm: Norm = "linf", *, chunk: int = 500
) -> RobustMargin:
    r"""Return m - eps ||grad_x m||_dual: first order, so neither an upper nor a lower bound.

    Exact for an affine model while its runner-up stays the same.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> linearised_margin(model, torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 0.1).values
    tensor([0.8000], dtype=torch.float64)
    """
    check_radius(eps, norm)
    x, y = check_data(x, y)

    def rows(a: Tensor, b: Tensor) -> Tensor:
        margins, gradient = margin_gradient(model, a.to(dtype_of(model, a)), b, true_margin)
        return margins.double() - eps * dual_norm(gradient.flatten(1).double(), norm)

    with evaluating(model):
        values = over_chunks(rows, model, x, y, chunk)
    return RobustMargin(values, "linearised", norm, eps, "neither")


def normalised_margin(
    model: nn.Module, x: Tensor, y: Tensor, norm: Norm = "l2", *, chunk: int = 500
) -> Tensor:
    r"""Return m / ||grad_x m||_dual, (N,): to first order, the distance to the border in `norm`.

    It does not depend on the scale of the logits: multiplying the last layer changes nothing.
    Reference: Elsayed et al. (2018), Large Margin Deep Networks, arXiv 1803.05598.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 3.0]]))
    >>> normalised_margin(model, torch.tensor([[2.0, 1.0]]), torch.tensor([0]), "linf")
    tensor([0.5000], dtype=torch.float64)
    """
    check_radius(0.0, norm)
    x, y = check_data(x, y)

    def rows(a: Tensor, b: Tensor) -> Tensor:
        margins, gradient = margin_gradient(model, a.to(dtype_of(model, a)), b, true_margin)
        slope = dual_norm(gradient.flatten(1).double(), norm)
        return margins.double() / slope.clamp_min(torch.finfo(torch.float64).tiny)

    with evaluating(model):
        return over_chunks(rows, model, x, y, chunk)
