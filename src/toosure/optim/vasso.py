"""Variance-suppressed SAM: the ascent direction is an average over steps."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.optim.limits import Limit, a_share
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

    limits: ClassVar[dict[str, Limit]] = {**SAM.limits, "theta": a_share}

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
        super().__init__(params, base, rho, model=model, clip_norm=clip_norm, **base_arguments)
        self._add_setting("theta", theta)

    def _perturb(self, share: float) -> None:
        buckets = []
        if share != 1:
            self._keep_unused(share)
        for group, params, gradients in self._buckets():
            directions = self._directions(params, gradients, group["theta"], share)
            buckets.append((group, params, directions))
        self._climb(buckets, keep=True)

    def _directions(
        self, params: list[Tensor], gradients: list[Tensor], theta: float, share: float
    ) -> list[Tensor]:
        """d_t of each parameter (a new one's is its gradient), and its share of what is kept."""
        # DDP may let gradients be views of its buckets, which the next pass overwrites.
        directions = [g.clone() if g._is_view() else g for g in gradients]
        self._average_(directions, params, theta, share == 1 and _captured(params[0]))
        parts = directions if share == 1 else torch._foreach_mul(directions, share)
        for p, part in zip(params, parts, strict=True):
            self._keep(p, part)
        return directions

    def _keep_unused(self, share: float) -> None:
        """Count a micro-batch that does not use a parameter as one of gradient zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None and "direction" in self.state.get(p, {}):
                    self._keep(p, self.state[p]["direction"] * ((1 - group["theta"]) * share))

    def _keep(self, p: Tensor, part: Tensor) -> None:
        self.pending[p] = self.pending[p] + part if p in self.pending else part

    def _average_(
        self, directions: list[Tensor], params: list[Tensor], theta: float, captured: bool
    ) -> None:
        """Turn g_t into (1 - theta) d_(t-1) + theta g_t where there is a past."""
        known = [i for i, p in enumerate(params) if "direction" in self.state.get(p, {})]
        if not known:
            return
        new = [directions[i] for i in known]
        before = [self.state[params[i]]["direction"] for i in known]
        if captured:
            torch._foreach_lerp_(before, new, theta)  # in a replay no step is given up half-way
            for i, d in zip(known, before, strict=True):
                directions[i] = d
        else:
            torch._foreach_lerp_(new, before, 1 - theta)

    def _update(self) -> None:
        """Keep the average after the base's step: Adam takes any earlier state for its own."""
        super()._update()
        fixed: list[tuple[Tensor, Tensor]] = []
        for p in self._trained():
            if p not in self.pending:
                continue
            before = self.state[p].get("direction")
            if before is None or not p.is_cuda:
                self.state[p]["direction"] = self.pending[p]
            elif before is not self.pending[p]:
                fixed.append((before, self.pending[p]))  # where a CUDA graph looks for it
        if fixed:
            torch._foreach_copy_([before for before, _ in fixed], [new for _, new in fixed])


def _captured(p: Tensor) -> bool:
    return p.is_cuda and torch.cuda.is_current_stream_capturing()
