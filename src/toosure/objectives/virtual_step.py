"""A step of gradient descent that is differentiable by the hyper-parameters of the loss."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from toosure.eval_mode import evaluating
from toosure.processes import Sharded
from toosure.processes.wrappers import unwrapped


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


def set_gradients(outer: Tensor, parameters: Sequence[Tensor], values: Tensor) -> Tensor | None:
    """Set `grad` of each parameter, 0 where `outer` does not depend on it; return that of values.

    None if `outer` does not depend on the values.
    """
    wanted = [*parameters, values]
    *gradients, of_values = torch.autograd.grad(outer, wanted, allow_unused=True)
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = torch.zeros_like(p) if gradient is None else gradient
    return of_values


def logits_after_step(
    model: nn.Module, inner: Tensor, inputs: Tensor, rate: float | Tensor
) -> Tensor:
    """Return the logits of inputs, in evaluation mode, after a virtual step of all weights."""
    network = unwrapped(model)
    names, parameters = zip(*network.named_parameters(), strict=True)
    add_up = model.summed if isinstance(model, Sharded) else None
    moved = virtual_step(inner, parameters, rate, add_up)
    with evaluating(network):
        logits: Tensor = functional_call(network, dict(zip(names, moved, strict=True)), (inputs,))
    return logits
