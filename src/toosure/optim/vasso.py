"""Variance-suppressed SAM: the ascent direction is a moving average over steps."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from toosure.optim.passes import being_recorded
from toosure.optim.sam import SAM, Bucket
from toosure.optim.validators import Validator, check_fraction
from toosure.processes.dtensor import local_shards


class VASSO(SAM):
    """Perturb along a moving average of gradients, which a single batch cannot mislead.

    Formula: d_t = (1 - theta) d_(t-1) + theta g_t with d_0 = g_0, eps = rho * d_t / ||d_t||;
    then as SAM. `theta=1` is SAM; a smaller theta suppresses more.
    Reference: Li, Giannakis, NeurIPS 2023, arXiv:2309.15639.

    The average is part of the state, one more copy of the parameters; a step that the AMP scaler
    skips does not change it. Each micro-batch perturbs along its own d_t, and their mean is
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

    validators: ClassVar[dict[str, Validator]] = {**SAM.validators, "theta": check_fraction}

    def __init__(
        self,
        params: ParamsT | nn.Module,
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
        if share != 1:
            self._keep_unused(share)

        buckets: list[Bucket] = []
        for group, params, gradients in self._buckets():
            directions = self._directions(params, gradients, group["theta"], share)
            buckets.append((group, params, directions))
        self._climb(buckets, keep=True)

    def _directions(
        self, params: list[Tensor], gradients: list[Tensor], theta: float, share: float
    ) -> list[Tensor]:
        """Return d_t of each parameter, and note its share of the average that is kept.

        A parameter without a past has d_t = g_t.
        """
        # DDP may let gradients be views of its buckets, which the next pass overwrites.
        directions = [g.clone() if g._is_view() else g for g in gradients]
        self._average_(directions, params, theta, share == 1 and being_recorded(params[0]))

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
        """Turn g_t into (1 - theta) d_(t-1) + theta g_t, except in the first step."""
        known = [i for i, p in enumerate(params) if "direction" in self.state.get(p, {})]
        if not known:
            return

        new = [directions[i] for i in known]
        before = [self.state[params[i]]["direction"] for i in known]
        if captured:
            # A graph must update the average in place, and no replayed step is given up half-way.
            torch._foreach_lerp_(before, new, theta)
            for i, d in zip(known, before, strict=True):
                directions[i] = d
        else:
            torch._foreach_lerp_(local_shards(new), local_shards(before), 1 - theta)

    def _update(self) -> None:
        """Store the average after the base's step: Adam takes any earlier state for its own."""
        super()._update()

        old: list[Tensor] = []
        new: list[Tensor] = []
        for p in self._trained():
            if p not in self.pending:
                continue
            average = self.state[p].get("direction")
            if average is None or not p.is_cuda:
                self.state[p]["direction"] = self.pending[p]
            elif average is not self.pending[p]:  # copied to where a CUDA graph reads it
                old.append(average)
                new.append(self.pending[p])
        if old:
            torch._foreach_copy_(local_shards(old), local_shards(new))

    def _make_state(self) -> None:
        """Make an average of zeros too, to be overwritten by the one that is loaded."""
        super()._make_state()
        for p in self._trained():
            self.state[p].setdefault("direction", torch.zeros_like(p))
