"""Bilevel objectives: learn hyper-parameters from a virtual step's loss on a meta split."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from toosure.data import Dataset, Split
from toosure.margins.robust import evaluating
from toosure.metrics.inputs import check_choice
from toosure.objectives.contract import Batch
from toosure.objectives.network import (
    features_and_logits,
    head_of,
    statistics_still,
    unwrapped,
)
from toosure.objectives.seeded import SeededModule
from toosure.objectives.splits import Splits, splits_of
from toosure.processes import Sharded

Scope = Literal["head", "full"]
Drawn = tuple[Tensor, Tensor, Tensor | None, Tensor]  # inputs, labels, meta indices, rate


class Bilevel(SeededModule):
    """Learn `hyper`, a module of hyper-parameters, beside the network.

    Each step, or each `every` steps: w' = w - lr grad_w inner(w; hyper), with the graph kept. Then
    Adam moves hyper down the gradient of outer(w') on a batch of the meta split, and the network
    takes its own step with the new values, held fixed. w is the head (`scope="head"`) or all
    parameters. The meta split is cut from the training split; `meta` is its share, or its size if
    above 1.

    Subclasses define `criterion` (the inner loss of (logits, labels), with values to set), `outer`,
    `make_hyper`, `values(model, features, x, labels)` and `assign(values)`.
    """

    hyper: nn.Module
    criterion: nn.Module
    loss: nn.Module  # the criterion, or CSAM's around it
    outer: nn.Module
    slope: Tensor  # norm of the last meta-gradient

    def __init__(
        self,
        meta: float,
        meta_batch: int,
        every: int,
        scope: Scope,
        lr: float,
        virtual_lr: float | None,
        seed: int,
    ) -> None:
        super().__init__(seed)
        check_choice("scope", scope, ("head", "full"))
        if not meta > 0 or meta_batch < 1 or every < 1:
            raise ValueError(
                f"need meta > 0, meta_batch >= 1 and every >= 1; got {meta}, {meta_batch}, {every}"
            )
        self.meta_share = meta
        self.meta_batch = meta_batch
        self.every = every
        self.scope = scope
        self.lr = lr
        self.virtual_lr = virtual_lr

        self.meta: Split | None = None
        self.taken = 0  # steps
        self.optimizer: torch.optim.Optimizer | None = None
        self.register_buffer("slope", torch.zeros(()))

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

    def constrain(self) -> None:
        """Project hyper back to its allowed range."""

    # -- the contract -----------------------------------------------------------------------

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Return nothing to the network's optimizer: hyper has its own."""
        return iter(())

    def setup(self, model: nn.Module, data: object) -> Dataset | Splits:
        """Cut the meta split off, and return the data without it: train on its `train.x`, `.y`."""
        splits = splits_of(data)
        n = len(splits.train)
        size = int(self.meta_share if self.meta_share >= 1 else self.meta_share * n)
        if not 0 < size < n:
            raise ValueError(f"a meta split of {size} cannot be cut from {n} training examples")

        device = splits.train.x.device
        order = torch.randperm(n, generator=self.generator).to(device)
        meta = order[:size].sort().values
        rest = order[size:].sort().values
        self.meta = subset(splits.train, meta)
        splits = replace(splits, train=subset(splits.train, rest))

        self.hyper = self.make_hyper(model, splits).to(device)
        on_gpu = device.type == "cuda"  # a CUDA graph needs Adam's step counter there, too
        self.optimizer = torch.optim.Adam(self.hyper.parameters(), self.lr, capturable=on_gpu)
        return splits

    @property
    def capturable(self) -> bool:
        """Whether every step does the same, so that a CUDA graph can record `settle`."""
        return self.every == 1

    def prepare(
        self, model: nn.Module, batch: Batch, lr: float, part: int = 0
    ) -> tuple[Tensor, ...]:
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
            size = (self.meta_batch,)
            indices = torch.randint(len(self.meta), size, generator=self.generator).to(x.device)
        self.taken += part == 0

        lr = lr if self.virtual_lr is None else self.virtual_lr
        rate = torch.full((), lr, dtype=torch.float64, device=x.device)
        return x, labels, indices, rate

    def settle(self, model: nn.Module, drawn: Drawn) -> tuple[Tensor, ...]:
        """Do the rest of `prepare`, which neither draws nor waits."""
        x, labels, indices, rate = drawn
        full = self.scope == "full"

        # Of the attention kernels only the plain one can be differentiated twice.
        attention = sdpa_kernel(SDPBackend.MATH) if full else nullcontext()
        with statistics_still(model), torch.set_grad_enabled(full), attention:
            features, logits = features_and_logits(model, x)

        if indices is not None:
            assert self.meta is not None
            meta = (self.meta.x[indices], self.meta.y[indices])
            with torch.enable_grad():
                self.meta_step(self.outer_loss(model, x, labels, features, logits, meta, rate))

        # A copy, as the next meta-step changes in place what the values may be views of.
        with torch.no_grad():
            values = self.values(model, features.detach(), x, labels).clone()
        self.note(values)
        return x, labels, values

    def note(self, values: Tensor) -> None:
        """Store what `report` returns about the values."""

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, values = prepared
        self.assign(values)
        loss: Tensor = self.loss(model(x), labels)
        return loss

    # -- the outer loop ---------------------------------------------------------------------

    def meta_step(self, outer: Tensor) -> None:
        """Move hyper down the gradient of the outer loss."""
        assert self.optimizer is not None
        parameters = list(self.hyper.parameters())
        gradients = []
        for p, gradient in zip(
            parameters, torch.autograd.grad(outer, parameters, allow_unused=True), strict=True
        ):
            p.grad = torch.zeros_like(p) if gradient is None else gradient
            gradients.append(p.grad.flatten())

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
        """Return the loss on the meta batch after a virtual step, with its graph to hyper."""
        self.assign(self.values(model, features.detach(), x, labels))
        meta_x, meta_y = meta

        if self.scope == "full":
            network = unwrapped(model)
            names, parameters = zip(*network.named_parameters(), strict=True)
            add_up = model.summed if isinstance(model, Sharded) else None
            moved = virtual_step(self.criterion(logits, labels), parameters, rate, add_up)
            with evaluating(network):
                weights = dict(zip(names, moved, strict=True))
                meta_logits = functional_call(network, weights, (meta_x,))
        else:
            head = [p.detach().requires_grad_() for p in head_of(model).parameters()]
            moved = virtual_step(self.criterion(F.linear(features, *head), labels), head, rate)
            with evaluating(model), torch.no_grad():
                meta_features, _ = features_and_logits(model, meta_x)
            meta_logits = F.linear(meta_features, *moved)

        outer: Tensor = self.outer(meta_logits, meta_y)
        return outer

    # -- state ------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        adam = {} if self.optimizer is None else self.optimizer.state_dict()
        return {"generator": super().get_extra_state(), "optimizer": adam, "taken": self.taken}

    def set_extra_state(self, state: Any) -> None:
        super().set_extra_state(state["generator"])
        self.taken = state["taken"]
        if self.optimizer is not None and state["optimizer"]:
            load_adam(self.optimizer, state["optimizer"])


def virtual_step(
    inner: Tensor,
    params: Sequence[Tensor],
    rate: float | Tensor,
    add_up: Callable[[Tensor], Tensor] | None = None,
) -> list[Tensor]:
    """Return p - rate d inner/dp of each parameter, differentiable through the gradient alone.

    `add_up` sums a gradient over processes of which each saw a part of the batch.

    >>> w = torch.tensor(0.5, requires_grad=True)
    >>> virtual_step(w**2, [w], 0.1)
    [tensor(0.4000, grad_fn=<SubBackward0>)]
    """
    gradients = torch.autograd.grad(inner, params, create_graph=True, allow_unused=True)
    if add_up is not None:
        gradients = tuple(None if g is None else add_up(g) for g in gradients)
    pairs = zip(params, gradients, strict=True)
    return [p.detach() if g is None else p.detach() - rate * g for p, g in pairs]


def load_adam(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load Adam's state from any device; its step counters go where this device needs them."""
    settings = [group["capturable"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)

    for group, capturable in zip(optimizer.param_groups, settings, strict=True):
        group["capturable"] = capturable
        for parameter in group["params"]:
            adam = optimizer.state.get(parameter)
            if adam:
                adam["step"] = adam["step"].to(parameter.device if capturable else "cpu")


def subset(split: Split, indices: Tensor) -> Split:
    """Return some examples of a split as a split."""
    return type(split)(
        split.x[indices], split.y[indices], split.clean[indices], split.indices[indices]
    )
