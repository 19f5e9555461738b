"""Variance-suppressed SAM: the ascent direction is an average over steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.optim.sam import SAM


class VASSO(SAM):
    """Perturb along a moving average of gradients, which a single batch cannot mislead.

    Formula: d_t = (1 - theta) d_(t-1) + theta g_t with d_0 = g_0, eps = rho * d_t / ||d_t||;
    then as SAM. `theta=1` is SAM; a smaller theta suppresses more.
    Reference: Li, Giannakis, NeurIPS 2023, arXiv:2309.15639.

    The average is part of the state, one more copy of the parameters; a step that the AMP scaler
    skips does not touch it. In micro-batches each perturbs along its own d_t, and their mean is
    kept. With rho=0 everywhere there is no average.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = VASSO([weight], rho=0.1, theta=0.4, lr=0.1)
    >>> def closure():
    ...     loss = 0.5 * (torch.tensor([3.0, 1.0]) * weight**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> optimizer.state[weight]["direction"]
    tensor([ 3., -2.])
    """

    def __init__(
        self,
        params: Any,
        base: Callable[..., Optimizer] = torch.optim.SGD,
        rho: float = 0.05,
        theta: float = 0.9,
        *,
        model: nn.Module | None = None,
        clip_norm: float | None = None,
        **base_arguments: Any,
    ) -> None:
        if not 0 < theta <= 1:
            raise ValueError(f"theta must be in (0, 1]; got {theta}")
        super().__init__(params, base, rho, model=model, clip_norm=clip_norm, **base_arguments)
        self._add_setting("theta", theta)

    def _perturb(self, share: float) -> None:
        for group, params, gradients in self._buckets():
            self._average(params, gradients, group["theta"])
            # On the CPU nothing overwrites the directions after this; on a GPU SAM scales them.
            whole = share == 1 and params[0].device.type == "cpu"
            parts = gradients if whole else torch._foreach_mul(gradients, share)
            for p, part in zip(params, parts, strict=True):
                self.pending[p] = self.pending[p] + part if p in self.pending else part
        super()._perturb(share)

    def _average(self, params: list[Tensor], gradients: list[Tensor], theta: float) -> None:
        """Turn the gradients into directions, in place; a parameter new to us keeps its own."""
        known = [i for i, p in enumerate(params) if "direction" in self.state.get(p, {})]
        if known and theta != 1:
            before = [self.state[params[i]]["direction"] for i in known]
            torch._foreach_lerp_([gradients[i] for i in known], before, 1 - theta)

    def _update(self) -> None:
        """Keep the average after the base's step: Adam takes any earlier state for its own."""
        super()._update()
        kept = [p for p in self._trained() if p in self.pending]
        fixed = [p for p in kept if p.is_cuda and "direction" in self.state[p]]
        if fixed:  # where a CUDA graph looks for it
            before = [self.state[p]["direction"] for p in fixed]
            torch._foreach_copy_(before, [self.pending.pop(p) for p in fixed])
        for p in kept:
            if p in self.pending:
                self.state[p]["direction"] = self.pending[p]
