"""One step of gradient descent whose result can be differentiated by what shaped the loss."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def virtual_step(
    inner: Tensor,
    params: Sequence[Tensor],
    rate: float | Tensor,
    add_up: Callable[[Tensor], Tensor] | None = None,
) -> list[Tensor]:
    """Return p - rate d inner/dp of each parameter, differentiable through the gradient alone.

    `add_up` sums a gradient over processes of which each saw a part of the batch.

    >>> w = torch.tensor(0.5, requires_grad=True)
    >>> virtual_step(w**2, [w], 0.1)
    [tensor(0.4000, grad_fn=<SubBackward0>)]
    """
    gradients = torch.autograd.grad(inner, params, create_graph=True, allow_unused=True)
    if add_up is not None:
        gradients = tuple(None if g is None else add_up(g) for g in gradients)
    pairs = zip(params, gradients, strict=True)
    return [p.detach() if g is None else p.detach() - rate * g for p, g in pairs]
