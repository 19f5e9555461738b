"""One step of the optimizer on one batch: one or two passes, autocast, clipping, loss scaling."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.objectives import Batch, Objective, preparing
from toosure.objectives.network import uncompiled
from toosure.optim import BSAM, SAM
from toosure.optim.passes import clip_each_member_
from toosure.train.engine import Engine

GRAPH_SETTINGS = ("capturable", "fused", "foreach")  # of a parameter group
AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Step:
    """Take a step on a batch: `step(batch, lr)` returns the loss before it, on the device."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective[Any],
        optimizer: Optimizer,
        precision: str = "float32",
        clip: float | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.engine = engine or Engine(model)
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.prepare = preparing(objective)
        self.clip = clip
        self.engine.bind(objective, optimizer)
        # `prepare`, which runs uncompiled, and the loss may share a forward pass.
        if hasattr(objective, "one_pass"):
            objective.one_pass = uncompiled(model) is model and asks_at_the_weights(optimizer)

        self.dtype = AUTOCAST_DTYPES.get(precision)
        self.device = next(model.parameters()).device.type
        self.scaler = torch.amp.GradScaler(self.device) if precision == "fp16" else None
        self.cache = True  # of autocast's casts; a graph must not cache them

        # Only for a CUDA graph: the two halves of `prepare`, of which the second is recorded.
        self.halves: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self.sizes: list[int] | None = None  # of the parts that a batch is cut into

    def __call__(self, batch: Batch, lr: float) -> Tensor:
        return self.descend(self.prepared(batch, lr))

    def prepared(self, batch: Batch, lr: float) -> list[Any]:
        """Prepare the batch, in parts for an optimizer that asks for several closures."""
        parts: list[Any] = [batch]
        self.sizes = None
        if isinstance(self.optimizer, BSAM):
            parts = self.optimizer.split(*batch)
            self.sizes = [len(labels) for _, labels, _ in parts]

        if self.halves:
            draw, _ = self.halves
            return [draw(part, lr) for part in parts]
        with self.autocast_preparing():
            return [self.prepare(self.model, part, lr, number) for number, part in enumerate(parts)]

    def descend(self, prepared: list[Any]) -> Tensor:
        """Step; the optimizer calls the closure as often as it needs."""
        if self.halves:
            _, settle = self.halves
            with self.autocast_preparing():
                prepared = [settle(self.model, drawn) for drawn in prepared]

        if isinstance(self.optimizer, SAM):
            # SAM clips and unscales between its passes itself.
            closures = [partial(self.closure, part) for part in prepared]
            loss = self.optimizer.step(closures, scaler=self.scaler, weights=self.sizes)
        elif self.scaler is not None:
            loss = self.closure(prepared[0])
            self.scaler.unscale_(self.optimizer)
            self.clip_gradients()
            self.scaler.step(self.optimizer)
        else:
            closure: Any = partial(self.clipping_closure, prepared[0])
            loss = self.optimizer.step(closure)

        if self.scaler is not None:
            self.scaler.update()
        detached: Tensor = loss.detach()
        return detached

    def closure(self, prepared: object) -> Tensor:
        """Compute the loss and its gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast(self.dtype is not None):
            loss = self.engine.loss(prepared)

        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()
        self.engine.share_gradients()
        return loss

    def autocast(self, enabled: bool) -> torch.autocast:
        return torch.autocast(self.device, self.dtype, enabled=enabled, cache_enabled=self.cache)

    def autocast_preparing(self) -> torch.autocast:
        """Return the autocast of `prepare`, for objectives whose passes need no float32."""
        wanted = bool(getattr(self.objective, "prepares_in_autocast", False))
        return self.autocast(wanted and self.dtype is not None)

    def clipping_closure(self, prepared: object) -> Tensor:
        """Compute the loss and its gradient, clipped."""
        loss = self.closure(prepared)
        self.clip_gradients()
        return loss

    def clip_gradients(self) -> None:
        """Scale the gradient down to the largest norm allowed."""
        if self.clip is not None:
            clip_each_member_(self.optimizer.param_groups, self.clip)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.scaler is not None:
            self.scaler.load_state_dict(state)


def asks_at_the_weights(optimizer: Optimizer) -> bool:
    """Whether an optimizer is known to compute the first loss before it moves the weights.

    SAM and its variants do, too, but need that pass to find the BatchNorm layers.
    """
    ours = type(optimizer).__module__.startswith(("torch.optim.", "toosure.optim."))
    return ours and not isinstance(optimizer, SAM)


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a state that was saved with or without a graph; keep the settings for graphs."""
    settings = [{k: g[k] for k in GRAPH_SETTINGS if k in g} for g in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group |= own
        group["lr"] = float(group["lr"])

    # A graph keeps step counters on the device, and moves them there itself.
    for each in optimizer.state.values():
        if "step" in each and isinstance(each["step"], Tensor):
            each["step"] = each["step"].cpu()


def set_rates(optimizer: Optimizer, rates: list[float], factor: float) -> None:
    """Set each group's learning rate to `factor` times its own; in place where a graph reads it."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * factor)
        else:
            group["lr"] = rate * factor
