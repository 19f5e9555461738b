"""Adaptive SAM: each weight is perturbed in proportion to its own size."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from toosure.optim.passes import by_member, climb_, global_norm
from toosure.optim.sam import SAM
from toosure.optim.validators import Validator, check_not_negative
from toosure.processes.dtensor import local_shards


class ASAM(SAM):
    """Perturb each weight in proportion to its size, so that rescaling layers changes nothing.

    Formula: T = |w| + eta, eps = rho * T^2 g / (||T g|| + 1e-12); then as SAM.
    Reference: Kwon, Kim, Park, Choi, ICML 2021, arXiv:2102.11600.

    Given `model.named_parameters()`, T is as in the authors' code: |w| + eta for tensors with
    "weight" in their name (BatchNorm's scales too), 1 for the rest. Without names, all tensors are
    adapted. `adaptive=True` or `False` in a parameter group overrules both. The authors use
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

    validators: ClassVar[dict[str, Validator]] = {**SAM.validators, "eta": check_not_negative}

    def __init__(
        self,
        params: ParamsT | nn.Module,
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
        """Add rho T^2 g / ||T g|| to the weights, overwriting the gradients."""
        buckets = list(self._buckets())
        adapted = []
        for group, params, gradients in buckets:
            indices = _adapted(group, params)
            if indices:
                sizes = _sizes(local_shards([params[i] for i in indices]), group["eta"])
                adapted.append((local_shards([gradients[i] for i in indices]), sizes))

        # The gradients become T g, of which the norm is taken, and then T^2 g.
        for gradients, sizes in adapted:
            torch._foreach_mul_(gradients, sizes)
        parts = by_member(buckets, group_of=itemgetter(0))
        norms = [global_norm([g for _, _, of in part for g in of]) for part in parts]
        for gradients, sizes in adapted:
            torch._foreach_mul_(gradients, sizes)

        for part, norm in zip(parts, norms, strict=True):
            for group, params, gradients in part:
                climb_(params, gradients, group["rho"], norm.to(params[0].device))


def _sizes(params: list[Tensor], eta: float) -> list[Tensor]:
    """Return T = |w| + eta."""
    sizes = list(torch._foreach_abs(params))
    if eta:
        torch._foreach_add_(sizes, eta)
    return sizes


def _adapted(group: dict[str, Any], params: list[Tensor]) -> Sequence[int]:
    """Return the indices of the tensors with T = |w| + eta: by the group, by names, or all."""
    if "adaptive" in group:
        return range(len(params)) if group["adaptive"] else ()
    if "param_names" not in group:
        return range(len(params))
    names = dict(zip(group["params"], group["param_names"], strict=True))
    return [i for i, p in enumerate(params) if "weight" in names[p]]
