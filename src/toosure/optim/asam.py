"""Adaptive SAM: the neighbourhood is measured in units of each weight's own size."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.optim.limits import Limit, not_negative
from toosure.optim.passes import climb_, global_norm
from toosure.optim.sam import SAM


class ASAM(SAM):
    """Perturb by a multiple of each weight's size, so that rescaling layers changes nothing.

    Formula: T = |w| + eta, eps = rho * T^2 g / (||T g|| + 1e-12); then as SAM.
    Reference: Kwon, Kim, Park, Choi, ICML 2021, arXiv:2102.11600.

    Given `model.named_parameters()`, T is as in the authors' code: |w| + eta for tensors with
    "weight" in their name (BatchNorm's scales too), 1 for the rest. Nameless tensors are all
    adapted. `adaptive=True` or `False` in a parameter group overrules both. The authors take
    rho 0.5 on CIFAR-10 and 1.0 on CIFAR-100. With eta = 0 a weight of exactly 0 is not perturbed.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = ASAM([weight], rho=0.1, eta=0.0, lr=0.1)
    >>> def closure():
    ...     loss = 0.5 * (torch.tensor([3.0, 1.0]) * weight**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> weight.detach()
    tensor([ 0.6820, -1.7840])
    """

    limits: ClassVar[dict[str, Limit]] = {**SAM.limits, "eta": not_negative}

    def __init__(
        self,
        params: Any,
        base: Callable[..., Optimizer] = torch.optim.SGD,
        rho: float = 0.5,
        eta: float = 0.01,
        *,
        model: nn.Module | None = None,
        clip_norm: float | None = None,
        **base_arguments: Any,
    ) -> None:
        super().__init__(params, base, rho, model=model, clip_norm=clip_norm, **base_arguments)
        self._add_setting("eta", eta)

    def _perturb(self, share: float) -> None:
        """Overwrite g by T g, take the norm, then by T^2 g, and add rho T^2 g / ||T g||."""
        buckets, adapted = list(self._buckets()), []
        for group, params, gradients in buckets:
            chosen = _adapted(group, params)
            if chosen:
                sizes = _sizes([params[i] for i in chosen], group["eta"])
                adapted.append(([gradients[i] for i in chosen], sizes))
        for gradients, sizes in adapted:
            torch._foreach_mul_(gradients, sizes)
        norm = global_norm([g for _, _, gradients in buckets for g in gradients])
        for gradients, sizes in adapted:
            torch._foreach_mul_(gradients, sizes)
        for group, params, gradients in buckets:
            climb_(params, gradients, group["rho"], norm.to(params[0].device))


def _sizes(params: list[Tensor], eta: float) -> list[Tensor]:
    """T = |w| + eta."""
    sizes = list(torch._foreach_abs(params))
    if eta:
        torch._foreach_add_(sizes, eta)
    return sizes


def _adapted(group: dict[str, Any], params: list[Tensor]) -> Sequence[int]:
    """Which tensors have T = |w| + eta: the group's word, else the names', else all."""
    if "adaptive" in group:
        return range(len(params)) if group["adaptive"] else ()
    if "param_names" not in group:
        return range(len(params))
    names = dict(zip(group["params"], group["param_names"], strict=True))
    return [i for i, p in enumerate(params) if "weight" in names[p]]
