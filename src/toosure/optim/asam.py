"""Adaptive SAM: the neighbourhood is measured in units of each weight's own size."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.optim.passes import add_scaled_, global_norm
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
        if eta < 0:
            raise ValueError(f"eta must not be negative; got {eta}")
        super().__init__(params, base, rho, model=model, clip_norm=clip_norm, **base_arguments)
        self._add_setting("eta", eta)

    def _perturb(self, share: float) -> None:
        """Overwrite g by T g, take the norm, then add rho T (T g) / ||T g||."""
        buckets, sizes = list(self._buckets()), []
        for group, params, gradients in buckets:
            sizes.append(_sizes(group, params))
            chosen = [g for g, size in zip(gradients, sizes[-1], strict=True) if size is not None]
            if chosen:
                torch._foreach_mul_(chosen, [size for size in sizes[-1] if size is not None])
        norm = global_norm([g for _, _, gradients in buckets for g in gradients])
        for (group, params, gradients), size in zip(buckets, sizes, strict=True):
            scale = group["rho"] / (norm.to(params[0].device) + 1e-12)
            add_scaled_(params, gradients, scale, size)


def _sizes(group: dict[str, Any], params: list[Tensor]) -> list[Tensor | None]:
    """T = |w| + eta for each tensor, None for T = 1."""
    chosen = _adapted(group, params)
    picked = [p for p, yes in zip(params, chosen, strict=True) if yes]
    sizes = list(torch._foreach_abs(picked)) if picked else []
    if sizes and group["eta"]:
        torch._foreach_add_(sizes, group["eta"])
    rest = iter(sizes)
    return [next(rest) if yes else None for yes in chosen]


def _adapted(group: dict[str, Any], params: list[Tensor]) -> list[bool]:
    """Which tensors have T = |w| + eta: the group's word, else the names', else all."""
    if "adaptive" in group:
        return [bool(group["adaptive"])] * len(params)
    if "param_names" not in group:
        return [True] * len(params)
    names = dict(zip(group["params"], group["param_names"], strict=True))
    return ["weight" in names[p] for p in params]
