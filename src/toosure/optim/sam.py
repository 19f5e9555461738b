"""Sharpness-aware minimisation around any torch optimizer; its variants share the two passes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from toosure.metrics.inputs import check_positive
from toosure.optim.micro_batches import (
    Closure,
    as_closures,
    mean_loss,
    only_closure,
    shares_of,
)
from toosure.optim.passes import (
    by_member,
    climb_,
    clip_each_member_,
    dense_gradient,
    global_norm,
    weights_restored,
)
from toosure.optim.statistics import RunningStatistics
from toosure.optim.validators import Validator, check_arguments, check_base, check_not_negative
from toosure.optim.wrapper import Wrapper
from toosure.processes.dtensor import local_shards

Bucket = tuple[dict[str, Any], list[Tensor], list[Tensor]]  # a group, parameters, their gradients


class SAM(Wrapper):
    """Take the base optimizer's step at w with the gradient found at the worst point nearby.

    Formula: eps = rho * g / (||g|| + 1e-12), g the gradient at w and the norm over all parameters;
    then the base steps from w with the gradient at w + eps, on the same batch.
    Reference: Foret, Kleiner, Mobahi, Neyshabur, ICLR 2021, arXiv:2010.01412.

    `closure` computes the loss, calls `backward` and returns the loss. It need not zero the
    gradients: the optimizer does so before each pass. `step` returns the loss at w. `rho` may
    differ between parameter groups; `rho=0` everywhere is the base optimizer, in one pass.
    `clip_norm` clips the gradient that the base receives. `model` is the network whose BatchNorm
    statistics are held still in the second pass; it is needed only where hooks cannot see its
    layers (in a function compiled by torch.compile). `base` is any optimizer class whose step needs
    no closure.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = SAM([weight], base=torch.optim.SGD, rho=0.1, lr=0.1)
    >>> def closure():
    ...     loss = 0.5 * (torch.tensor([3.0, 1.0]) * weight**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    3.5
    >>> weight.detach()
    tensor([ 0.6750, -1.7945])
    """

    passes_arguments_to: ClassVar[str] = "base"
    first_pass_at_w: ClassVar[bool] = True  # so that gradients computed elsewhere can serve

    # What `step()` without a closure calls at the perturbed point; see `step`.
    second_pass: Closure | None = None

    pickled: ClassVar[tuple[str, ...]] = ("base", "clip_norm", "statistics")
    validators: ClassVar[dict[str, Validator]] = {"rho": check_not_negative}

    def __init__(
        self,
        params: ParamsT | nn.Module,
        base: Callable[..., Optimizer] = torch.optim.SGD,
        rho: float = 0.05,
        *,
        model: nn.Module | None = None,
        clip_norm: float | None = None,
        **base_arguments: Any,
    ) -> None:
        check_base(base, refused=SAM)
        check_arguments(type(self), base, base_arguments)
        if clip_norm is not None:
            check_positive("clip_norm", clip_norm)

        self.clip_norm = clip_norm
        self.statistics = RunningStatistics(model)
        self.pending: dict[Tensor, Tensor] = {}  # what a subclass keeps if the step is taken
        super().__init__(base(params, **base_arguments), rho=rho)

        if any(group.get("maximize") for group in self.param_groups):
            raise ValueError(
                f"{type(self).__name__} climbs to where the loss is largest, and steps down: "
                "instead of maximize=True negate the loss"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "pending": {}}

    @torch.no_grad()
    def step(
        self,
        closure: Closure | Iterable[Closure] | None = None,
        *,
        scaler: torch.amp.GradScaler | None = None,
        weights: Sequence[float] | None = None,
        gradients_ready: bool = False,
    ) -> Any:
        """Step once; return the loss at w.

        With `gradients_ready` the gradients at hand are those at w, as a framework has computed
        them (over micro-batches, too): the closure is called once, at the perturbed point, and its
        loss there is returned. A step without closure does so with `second_pass`, where that is
        set: for a framework that calls `step()`.

        A list of closures is one batch in micro-batches (m-sharpness): each finds its own
        perturbation, and the gradients found there are averaged, by `weights` (the sizes of the
        micro-batches) if they are not equal. A BatchNorm layer's statistics move in the first pass
        that runs it. With `scaler` the closure calls `scaler.scale(loss).backward()`, and an
        infinite gradient in either pass leaves weights and state as they were; call
        `scaler.update()` after the step.
        """
        scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if closure is None and self.second_pass is not None:
            return self._step_with_gradients(self.second_pass, scaler)
        if gradients_ready:
            return self._step_with_gradients(only_closure(closure), scaler)
        if closure is None and all(group.get("lr") == 0 for group in self.param_groups):
            return self._make_state()

        closures = as_closures(closure)
        shares = shares_of(weights, len(closures))
        several = len(closures) > 1

        losses: list[Any] = []
        total: dict[Tensor, Tensor] = {}  # gradients of the micro-batches, added up
        self.pending = {}
        self._begin(len(closures))
        with self.statistics.moving_once(several):
            for closure, share in zip(closures, shares, strict=True):
                with self.statistics.recording_modules():
                    losses.append(self._first_pass(closure))
                if self._perturbs() or several:
                    self.statistics.keep(self._trained, losses[-1])

                if self._perturbs():
                    if scaler is not None and not self._unscaled_is_finite(scaler):
                        scaler.unscale_(self.base)  # so that scaler.update() sees the infinity
                        return mean_loss(losses, shares)
                    with self._perturbed(share):
                        self._pass(closure)

                if several:
                    self._add_gradients(total, share)

        for p, gradient in total.items():
            p.grad = gradient
        self._descend(scaler)
        self.pending = {}
        return mean_loss(losses, shares)

    def _make_state(self) -> None:
        """Make the state that the first step would make, and move nothing.

        torch.distributed.checkpoint asks for it before it loads one: it sets zero gradients and
        learning rates of 0, and calls `step()`.
        """
        self._step_base()

    def _step_with_gradients(self, closure: Closure, scaler: torch.amp.GradScaler | None) -> Any:
        """Step from the gradients at w that are there; return the loss at the perturbed point."""
        if not self.first_pass_at_w:
            raise ValueError(
                f"{type(self).__name__} takes its first gradient at another point than w, so that "
                "gradients computed there are of no use: give step a closure, and nothing else"
            )
        if not self._trained():
            raise ValueError("there are no gradients to step with: call backward() before the step")

        self.pending = {}
        loss = None
        if self._perturbs():
            if scaler is not None and not self._unscaled_is_finite(scaler):
                scaler.unscale_(self.base)  # so that scaler.update() sees the infinity
                return None
            with self.statistics.held_still(self._trained), self._perturbed(1.0):
                loss = self._pass(closure)

        self._descend(scaler)
        self.pending = {}
        return loss

    def _pass(self, closure: Closure) -> Any:
        """Run the closure on fresh gradients; stale ones must not reach the second pass."""
        for group in self.param_groups:  # as zero_grad, without its profiler record
            for p in group["params"]:
                p.grad = None

        with torch.enable_grad():
            loss = closure()
        if not self._trained():
            raise ValueError(
                "the closure left no gradient on this optimizer's parameters, so nothing would be "
                "trained: call loss.backward() in it before it returns the loss (of a model whose "
                "parameters these are)"
            )
        return loss

    def _begin(self, passes: int) -> None:
        """Get ready for that many first passes."""

    def _first_pass(self, closure: Closure) -> Any:
        """Take the gradient that decides where to perturb to."""
        return self._pass(closure)

    def _perturbs(self) -> bool:
        """Whether a second pass can differ from the first."""
        # A controller's tensor is never 0, and reading it would wait for the device.
        radii = [group["rho"] for group in self.param_groups]
        return any(isinstance(rho, Tensor) or rho != 0 for rho in radii)

    @contextmanager
    def _perturbed(self, share: float) -> Iterator[None]:
        """Inside, the weights are w + eps; `share` is this micro-batch's fraction of the batch."""
        with weights_restored(self._trained()):
            self._perturb(share)
            yield

    def _perturb(self, share: float) -> None:
        """Move the weights to w + eps, overwriting the gradients (no copy but the saved w)."""
        self._climb(list(self._buckets()))

    def _climb(self, buckets: list[Bucket], keep: bool = False) -> None:
        """Add rho * directions / (their norm over all buckets) to the weights."""
        for part in by_member(buckets, group_of=itemgetter(0)):
            norm = global_norm([d for _, _, directions in part for d in directions])
            for group, params, directions in part:
                climb_(params, directions, group["rho"], norm.to(params[0].device), keep)

    def _descend(self, scaler: torch.amp.GradScaler | None) -> None:
        """Step the base with the current gradients, unless the scaler finds an infinity in them."""
        if scaler is not None:
            scaler.unscale_(self.base)
            if any(bool(infinite) for infinite in scaler._found_inf_per_device(self.base).values()):
                return

        if self.clip_norm is not None:
            clip_each_member_(self.param_groups, self.clip_norm)

        self._update()

    def _update(self) -> None:
        """Take the step; subclasses update their state with it."""
        self._step_base()

    def _trained(self) -> list[Tensor]:
        """Return the parameters that have a gradient now."""
        return [p for g in self.param_groups for p in g["params"] if p.grad is not None]

    def _buckets(self) -> Iterator[Bucket]:
        """Yield (group, parameters, dense gradients), of one device and type, for foreach calls."""
        for group in self.param_groups:
            alike: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                params, gradients = alike.setdefault((p.device, p.dtype), ([], []))
                params.append(p)
                gradients.append(dense_gradient(p))

            for params, gradients in alike.values():
                yield group, params, gradients

    def _unscaled_is_finite(self, scaler: torch.amp.GradScaler) -> bool:
        """Divide the first pass's gradients by the scale; return whether all are finite (waits)."""
        all_gradients: list[Tensor] = []
        for _, params, gradients in self._buckets():
            one = torch.ones((), device=params[0].device)
            torch._foreach_mul_(local_shards(gradients), scaler.scale(one).reciprocal())
            all_gradients += gradients
        return bool(torch.isfinite(global_norm(all_gradients)))

    def _add_gradients(self, total: dict[Tensor, Tensor], share: float) -> None:
        for p in self._trained():
            assert p.grad is not None
            gradient = p.grad * share
            total[p] = total[p] + gradient if p in total else gradient
