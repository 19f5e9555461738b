"""One step of the optimizer on one batch: one or two passes, autocast, clipping, loss scaling."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from toosure.objectives import Batch, preparing
from toosure.optim import BSAM, SAM
from toosure.processes import ALONE, Processes, share_gradients

GRAPH_SETTINGS = ("capturable", "fused", "foreach")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Step:
    """Take a step on a batch, `step(batch, lr)`, and return the loss before it, on the device."""

    def __init__(
        self,
        model: nn.Module,
        objective: Any,
        optimizer: Optimizer,
        precision: str = "float32",
        clip: float | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.prepare, self.processes = preparing(objective), processes
        self.clip, self.dtype = clip, DTYPES.get(precision)
        self.device = next(model.parameters()).device.type
        self.scaler = torch.amp.GradScaler(self.device) if precision == "fp16" else None
        self.cache = True  # of autocast's casts; a graph must not keep them
        self.sizes: list[int] | None = None  # of the parts of a batch that is cut
        self.halves: Any = None  # of `prepare`, the second done when descending, in a graph

    def __call__(self, batch: Batch, lr: float) -> Tensor:
        return self.descend(self.prepared(batch, lr))

    def prepared(self, batch: Batch, lr: float) -> list[Any]:
        """Prepare the batch, in parts for an optimizer that asks for several closures."""
        cut = isinstance(self.optimizer, BSAM)
        parts: list[Any] = self.optimizer.split(*batch) if cut else [batch]  # type: ignore[attr-defined]
        self.sizes = [len(labels) for _, labels, _ in parts] if cut else None
        if self.halves:
            return [self.halves[0](part, lr) for part in parts]
        return [self.prepare(self.model, part, lr, place) for place, part in enumerate(parts)]

    def descend(self, prepared: list[Any]) -> Tensor:
        """Let the optimizer call the closure as often as it likes, and step."""
        if self.halves:
            prepared = [self.halves[1](self.model, drawn) for drawn in prepared]
        closures = [partial(self.closure, each) for each in prepared]
        if isinstance(self.optimizer, SAM):  # it clips and scales between its passes itself
            loss = self.optimizer.step(closures, scaler=self.scaler, weights=self.sizes)
        elif self.scaler is not None:
            loss = closures[0]()
            self.scaler.unscale_(self.optimizer)
            self.clipped()
            self.scaler.step(self.optimizer)
        else:
            closure: Any = partial(self.clipping_closure, prepared[0])
            loss = self.optimizer.step(closure)
        if self.scaler is not None:
            self.scaler.update()
        return loss.detach()

    def closure(self, prepared: Any) -> Tensor:
        """Compute the loss and its gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            self.device, self.dtype, enabled=self.dtype is not None, cache_enabled=self.cache
        ):
            loss = self.objective(self.model, prepared)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.processes.count > 1:
            self.share_gradients()
        return loss

    def share_gradients(self) -> None:
        """Add up the network's gradients; an objective's own parameters saw the whole batch."""
        network = {id(p) for p in self.model.parameters()}
        every = [p for g in self.optimizer.param_groups for p in g["params"]]
        parts = [p for p in every if id(p) in network]
        share_gradients(parts, [p for p in every if id(p) not in network], self.processes)

    def clipping_closure(self, prepared: Any) -> Tensor:
        loss = self.closure(prepared)
        self.clipped()
        return loss

    def clipped(self) -> None:
        if self.clip is not None:
            clip_grad_norm_(
                [p for g in self.optimizer.param_groups for p in g["params"]], self.clip
            )

    def state_dict(self) -> dict[str, Any]:
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.scaler is not None:
            self.scaler.load_state_dict(state)


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a state however it was made: what only serves a graph stays as it is here."""
    own = [{k: g[k] for k in GRAPH_SETTINGS if k in g} for g in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, settings in zip(optimizer.param_groups, own, strict=True):
        group |= settings
        group["lr"] = float(group["lr"])
    for each in optimizer.state.values():
        if "step" in each and isinstance(each["step"], Tensor):
            each["step"] = each["step"].cpu()  # a graph moves it to the device again


def set_rates(optimizer: Optimizer, rates: list[float], share: float) -> None:
    """Set each group's learning rate to a share of its own; in place where a graph reads it."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * share)
        else:
            group["lr"] = rate * share
