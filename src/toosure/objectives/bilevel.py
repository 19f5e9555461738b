"""Bilevel objectives: learn hyper-parameters from a virtual step's loss on a meta split."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import astuple
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from toosure.data import Dataset, Split
from toosure.eval_mode import evaluating
from toosure.metrics.inputs import at_least_float32, check_choice
from toosure.objectives.adam_state import load_adam
from toosure.objectives.contract import Batch, reduction_factor
from toosure.objectives.first_pass import FirstPass
from toosure.objectives.meta_signal import MetaSignal, SignalToNoise
from toosure.objectives.network import (
    check_head,
    features_and_logits,
    head_of,
    statistics_still,
)
from toosure.objectives.seeded import SeededModule
from toosure.objectives.splits import Splits, cut_meta_split, splits_of
from toosure.objectives.stored_features import StoredFeatures, stored_features
from toosure.objectives.virtual_step import logits_after_step, set_gradients, virtual_step
from toosure.optim.validators import check_not_negative

Scope = Literal["head", "full"]
Drawn = tuple[Tensor, Tensor, Tensor | None, Tensor]  # inputs, labels, meta indices, rate
Prepared = tuple[Any, ...]  # inputs, labels, values of the examples; with `one_pass` a FirstPass


class Bilevel(SeededModule):
    """Learn `hyper`, a module of hyper-parameters, beside the network.

    Every step, or every `every` steps: w' = w - lr grad_w inner(w; hyper), keeping the graph. Then
    Adam moves hyper down the gradient of outer(w') on a batch of the meta split, and the network
    takes its own step with the new values fixed. w is the head (`scope="head"`) or all parameters.
    The meta split is cut from the training split; `meta` is its share, or its size if above 1.
    `virtual_lr` is the rate of the virtual step on the mean loss, by default the run's rate. With
    `fresh`, that number of meta examples passes the network at a step, and the outer loss is of the
    last `meta_batch` of them (with `scope="full"`, of the fresh ones).

    A loop sets `one_pass` if the optimizer first asks for the loss at the current weights. Then the
    pass that gives the meta-step its features also serves that loss.

    Subclasses define `criterion` (the inner loss of (logits, labels), with values to set), `outer`,
    `make_hyper`, `values(model, features, x, labels)` and `assign(values)`.
    """

    one_pass = False
    ddp = "learns from the gradient of the whole batch, which DDP has in no process: give --exact"
    hyper: nn.Module
    criterion: nn.Module
    loss: nn.Module  # the criterion, or CSAM's around it
    outer: nn.Module
    slope: Tensor  # norm of the last meta-gradient
    inner_values: Tensor  # of the last outer loss, with their graph

    def __init__(
        self,
        meta: float,
        meta_batch: int,
        every: int,
        scope: Scope,
        lr: float,
        virtual_lr: float | None,
        seed: int,
        fresh: int | None = None,
    ) -> None:
        super().__init__(seed)
        check_choice("scope", scope, ("head", "full"))
        if not meta > 0 or meta_batch < 1 or every < 1:
            raise ValueError(
                f"need meta > 0, meta_batch >= 1 and every >= 1; got {meta}, {meta_batch}, {every}"
            )
        if fresh is not None and fresh < 1:
            raise ValueError(f"fresh must be at least 1, or none; got {fresh}")
        for name, rate in (("lr", lr), ("virtual_lr", virtual_lr)):
            if rate is not None:
                check_not_negative(name, rate)

        self.meta_share = meta
        self.meta_batch = meta_batch
        self.every = every
        self.scope = scope
        self.lr = lr
        self.virtual_lr = virtual_lr
        self.fresh = min(fresh or meta_batch, meta_batch)

        self.meta: Split | None = None
        self.taken = 0  # steps
        self.optimizer: torch.optim.Optimizer | None = None
        self.register_buffer("slope", torch.zeros(()))
        self.signal = MetaSignal(meta_batch / self.fresh)  # of the slopes in the values
        self.stored: StoredFeatures | None = None

    # -- what subclasses define -------------------------------------------------------------

    def make_hyper(self, model: nn.Module, data: Dataset | Splits) -> nn.Module:
        """Return the module of hyper-parameters."""
        raise NotImplementedError

    def values(self, model: nn.Module, features: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        """Return the value of each example, (N,), with a graph to hyper."""
        raise NotImplementedError

    def assign(self, values: Tensor) -> None:
        """Set the values in the criterion."""
        raise NotImplementedError

    def hyper_groups(self) -> list[dict[str, Any]]:
        """Return the parameters of hyper in groups; their rate is `lr` unless they name one."""
        return [{"params": list(self.hyper.parameters())}]

    def constrain(self) -> None:
        """Project hyper back to its allowed range."""

    # -- the contract -----------------------------------------------------------------------

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Return nothing to the network's optimizer: hyper has its own."""
        return iter(())

    def setup(self, model: nn.Module, data: object) -> Dataset | Splits:
        """Cut off the meta split, and return the data without it: train on its `train.x`, `.y`."""
        self.meta, splits = cut_meta_split(splits_of(data), self.meta_share, self.generator)
        device = splits.train.x.device
        if self.scope == "head":
            check_head(model, self.meta.x[:2], ", or take scope=full")

        self.hyper = self.make_hyper(model, splits).to(device)
        on_gpu = device.type == "cuda"  # a CUDA graph needs Adam's step counter there, too
        self.optimizer = torch.optim.Adam(self.hyper_groups(), self.lr, capturable=on_gpu)
        if self.fresh < self.meta_batch and self.scope == "head":
            first = self.draw_indices(self.meta_batch).to(device)
            self.stored = stored_features(model, self.meta.x[first], self.meta.y[first])
        return splits

    def draw_indices(self, count: int) -> Tensor:
        """Draw `count` examples of the meta split, with replacement."""
        assert self.meta is not None
        return torch.randint(len(self.meta), (count,), generator=self.generator)

    @property
    def capturable(self) -> bool:
        """Whether all steps are alike, so that a CUDA graph can record `settle`."""
        return self.every == 1

    def prepare(self, model: nn.Module, batch: Batch, lr: float, part: int = 0) -> Prepared:
        """Take the meta-step, and return the batch with the value of each example.

        Of a batch in parts (BSAM), the meta-step is taken on part 0.
        """
        return self.settle(model, self.draw(batch, lr, part))

    def draw(self, batch: Batch, lr: float, part: int = 0) -> Drawn:
        """Return the batch, indices of a meta batch if a meta-step is due, and its rate."""
        if self.optimizer is None or self.meta is None:
            raise ValueError("the hyper-parameters need a meta split: call setup(model, data)")

        x, labels, _ = batch
        indices = None
        if part == 0 and self.taken % self.every == 0:
            indices = self.draw_indices(self.fresh).to(x.device)
        self.taken += part == 0

        if self.virtual_lr is not None:
            lr = self.virtual_lr / reduction_factor(self.criterion, len(labels))
        rate = torch.full((), lr, dtype=torch.float64, device=x.device)
        return x, labels, indices, rate

    @property
    def prepares_in_autocast(self) -> bool:
        """Whether `prepare` may run in the precision of the step; a double backward may not."""
        return self.scope == "head"

    def settle(self, model: nn.Module, drawn: Drawn) -> Prepared:
        """Do the rest of `prepare`, without random numbers and without waiting for the device."""
        x, labels, indices, rate = drawn
        full = self.scope == "full"
        for_loss = self.one_pass and not full
        meta = None if indices is None else self.meta_rows(model, indices)

        # Only the math kernel of attention can be differentiated twice.
        attention = sdpa_kernel(SDPBackend.MATH) if full else nullcontext()
        statistics = nullcontext() if for_loss else statistics_still(model)
        with statistics, torch.set_grad_enabled(full or for_loss), attention:
            features, logits = features_and_logits(model, x)

        with torch.autocast(x.device.type, enabled=False):
            features = at_least_float32(features.detach())
            if meta is not None:
                with torch.enable_grad():
                    self.meta_step(self.outer_loss(model, x, labels, features, logits, meta, rate))

            # A copy, because the values may be views of what the next meta-step changes in place.
            with torch.no_grad():
                values = self.values(model, features, x, labels).clone()
        self.store_summary(values)
        return (x, labels, values, FirstPass(model, logits)) if for_loss else (x, labels, values)

    @torch.no_grad()
    def meta_rows(self, model: nn.Module, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of the outer loss for a meta batch, and its labels.

        These are features (with stored ones) for the head, and inputs for the whole network.
        """
        assert self.meta is not None
        inputs = self.meta.x[indices]
        labels = self.meta.y[indices]
        if self.scope == "full":
            return inputs, labels

        with evaluating(model):
            features = at_least_float32(features_and_logits(model, inputs)[0])
        torch.clear_autocast_cache()  # torch before 2.11 would reuse its casts without a gradient
        if self.stored is None:
            return features, labels
        self.stored.push(features, labels)
        return self.stored.features, self.stored.labels

    def store_summary(self, values: Tensor) -> None:
        """Store what `report` returns about the values."""

    def forward(self, model: nn.Module, prepared: Prepared) -> Tensor:
        x, labels, values, *passed = prepared
        logits = passed[0].take(model) if passed else None
        if logits is None:
            logits = model(x)

        self.assign(values)
        loss: Tensor = self.loss(logits, labels)
        return loss

    # -- the outer loop ---------------------------------------------------------------------

    def meta_step(self, outer: Tensor) -> None:
        """Move hyper down the gradient of the outer loss."""
        assert self.optimizer is not None
        parameters = list(self.hyper.parameters())
        of_values = set_gradients(outer, parameters, self.inner_values)
        self.inner_values = self.inner_values.detach()  # what holds a graph cannot be copied
        if of_values is not None:
            self.signal.add(of_values.sum())

        gradients = [p.grad.flatten() for p in parameters if p.grad is not None]
        self.slope.copy_(torch.linalg.vector_norm(torch.cat(gradients)))
        self.optimizer.step()
        self.constrain()

    def outer_loss(
        self,
        model: nn.Module,
        x: Tensor,
        labels: Tensor,
        features: Tensor,
        logits: Tensor,
        meta: tuple[Tensor, Tensor],
        rate: float | Tensor,
    ) -> Tensor:
        """Return the loss on `meta_rows` after a virtual step, with its graph to hyper."""
        self.inner_values = self.values(model, features.detach(), x, labels)
        self.assign(self.inner_values)
        meta_inputs, meta_labels = meta

        if self.scope == "full":
            meta_logits = logits_after_step(
                model, self.criterion(logits, labels), meta_inputs, rate
            )
        else:
            head = [p.detach().requires_grad_() for p in head_of(model).parameters()]
            moved = virtual_step(self.criterion(F.linear(features, *head), labels), head, rate)
            meta_logits = F.linear(meta_inputs, *moved)

        outer: Tensor = self.outer(meta_logits, meta_labels)
        return outer

    # -- state ------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        return {
            "generator": super().get_extra_state(),
            "optimizer": {} if self.optimizer is None else self.optimizer.state_dict(),
            "taken": self.taken,
            "signal": self.signal.sums.clone(),
            "last_signal": astuple(self.signal.last),
        }

    def set_extra_state(self, state: Any) -> None:
        super().set_extra_state(state["generator"])
        self.taken = state["taken"]
        self.signal.sums.copy_(state["signal"])
        self.signal.last = SignalToNoise(*state["last_signal"])
        if self.optimizer is not None and state["optimizer"]:
            load_adam(self.optimizer, state["optimizer"])
