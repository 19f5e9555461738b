"""Two loops: hyper-parameters learn from how a virtual step of the network does on a meta split."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from toosure.margins.robust import evaluating
from toosure.metrics.inputs import check_choice
from toosure.objectives.contract import Batch
from toosure.objectives.drawing import Drawing
from toosure.objectives.network import (
    features_and_logits,
    head_of,
    statistics_still,
    unwrapped,
)
from toosure.objectives.splits import splits_of
from toosure.processes import Sharded

Scope = Literal["head", "full"]
Drawn = tuple[Tensor, Tensor, Tensor | None, Tensor]  # inputs, labels, places in meta, rate


class Bilevel(Drawing):
    """Learn `hyper`, a module of hyper-parameters, beside the network.

    Each step (or every so many): w' = w - lr grad_w inner(w; hyper), with the graph kept; then Adam
    moves hyper down the gradient of outer(w') on a batch of the meta split; then the network takes
    its own step with the new values, held fixed. w is the head (`scope="head"`) or everything.
    The meta split is cut from the training split; `meta` is its share, or its size if above 1.

    Subclasses give `criterion` (a loss of (logits, labels) with values to set), `make_hyper`,
    `values(model, features, x, labels)`, `assign(values)` and `outer`.
    """

    hyper: nn.Module
    criterion: nn.Module
    outer: nn.Module
    slope: Tensor

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
        self.meta_share, self.meta_batch, self.every = meta, meta_batch, every
        self.scope, self.lr, self.virtual_lr = scope, lr, virtual_lr
        self.meta: Any = None
        self.taken = 0
        self.optimizer: torch.optim.Optimizer | None = None
        self.register_buffer("slope", torch.zeros(()))  # norm of the last meta-gradient

    # -- what subclasses say ----------------------------------------------------------------

    def make_hyper(self, model: nn.Module, data: Any) -> nn.Module:
        """Return the module of hyper-parameters."""
        raise NotImplementedError

    def values(self, model: nn.Module, features: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        """Return the value of each example, (N,), with a graph to hyper."""
        raise NotImplementedError

    def assign(self, values: Tensor) -> None:
        """Set the values in the criterion."""
        raise NotImplementedError

    def constrain(self) -> None:
        """Bring hyper back to where it may be."""

    # -- the contract -----------------------------------------------------------------------

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Return nothing to the network's optimizer: hyper has its own."""
        return iter(())

    def setup(self, model: nn.Module, data: Any) -> Any:
        """Cut the meta split off, and return the data without it: train on its `train.x`, `.y`."""
        data = splits_of(data)
        n = len(data.train)
        size = int(self.meta_share if self.meta_share >= 1 else self.meta_share * n)
        if not 0 < size < n:
            raise ValueError(f"a meta split of {size} cannot be cut from {n} training examples")
        order = torch.randperm(n, generator=self.generator).to(data.train.x.device)
        meta, rest = order[:size].sort().values, order[size:].sort().values
        self.meta = picked(data.train, meta)
        data = replace(data, train=picked(data.train, rest))
        device = data.train.x.device
        self.hyper = self.make_hyper(model, data).to(device)
        on_gpu = device.type == "cuda"  # where Adam's counter goes, too, for a graph's sake
        self.optimizer = torch.optim.Adam(self.hyper.parameters(), self.lr, capturable=on_gpu)
        return data

    @property
    def capturable(self) -> bool:
        """Whether every step is alike, so that a CUDA graph can record `settle`."""
        return self.every == 1

    def prepare(
        self, model: nn.Module, batch: Batch, lr: float, part: int = 0
    ) -> tuple[Tensor, ...]:
        """Take the meta-step, and return the batch with the value of each example.

        Of a batch in parts (BSAM), the meta-step is taken on the first.
        """
        return self.settle(model, self.draw(batch, lr, part))

    def draw(self, batch: Batch, lr: float, part: int = 0) -> Drawn:
        """Return the batch, the places of the meta batch if a meta-step is due, and its rate."""
        if self.optimizer is None:
            raise ValueError("the hyper-parameters need a meta split: call setup(model, data)")
        x, labels, _ = batch
        at = None
        if part == 0 and self.taken % self.every == 0:
            at = torch.randint(len(self.meta), (self.meta_batch,), generator=self.generator)
            at = at.to(x.device)
        self.taken += part == 0
        rate = lr if self.virtual_lr is None else self.virtual_lr
        return x, labels, at, torch.full((), rate, dtype=torch.float64, device=x.device)

    def settle(self, model: nn.Module, drawn: Drawn) -> tuple[Tensor, ...]:
        """Do the rest of `prepare`, which neither draws nor waits."""
        x, labels, at, rate = drawn
        full = self.scope == "full"
        attention = sdpa_kernel(SDPBackend.MATH) if full else nullcontext()  # two derivatives
        with statistics_still(model), torch.set_grad_enabled(full), attention:
            features, logits = features_and_logits(model, x)
        if at is not None:
            meta = self.meta.x[at], self.meta.y[at]
            with torch.enable_grad():
                self.meta_step(self.outer_loss(model, x, labels, features, logits, meta, rate))
        with torch.no_grad():  # a copy: the next meta-step moves what the values may be views of
            values = self.values(model, features.detach(), x, labels).clone()
        self.note(values)
        return x, labels, values

    def note(self, values: Tensor) -> None:
        """Keep what `report` says of the values."""

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, values = prepared
        self.assign(values)
        return self.loss(model(x), labels)  # type: ignore[operator]

    # -- the outer loop ---------------------------------------------------------------------

    def meta_step(self, outer: Tensor) -> None:
        """Move hyper down the gradient of the outer loss."""
        assert self.optimizer is not None
        own = list(self.hyper.parameters())
        slopes = torch.autograd.grad(outer, own, allow_unused=True)
        pairs = zip(own, slopes, strict=True)
        found = [torch.zeros_like(p) if slope is None else slope for p, slope in pairs]
        for p, slope in zip(own, found, strict=True):
            p.grad = slope
        self.slope.copy_(torch.linalg.vector_norm(torch.cat([s.flatten() for s in found])))
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
            names, params = zip(*network.named_parameters(), strict=True)
            share = model.summed if isinstance(model, Sharded) else None
            fast = virtual_step(self.criterion(logits, labels), params, rate, share)
            with evaluating(network):
                outputs = functional_call(network, dict(zip(names, fast, strict=True)), (meta_x,))
            return self.outer(outputs, meta_y)
        head = head_of(model)
        own = [p.detach().requires_grad_() for p in head.parameters()]
        fast = virtual_step(self.criterion(F.linear(features, *own), labels), own, rate)
        with evaluating(model), torch.no_grad():
            meta_features, _ = features_and_logits(model, meta_x)
        return self.outer(F.linear(meta_features, *fast), meta_y)

    # -- there and back ---------------------------------------------------------------------

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
    share: Callable[[Tensor], Tensor] | None = None,
) -> list[Tensor]:
    """Return p - rate d inner/dp of each parameter, differentiable through the gradient alone.

    `share` adds a gradient up over processes that saw a part of the batch each.

    >>> w = torch.tensor(0.5, requires_grad=True)
    >>> virtual_step(w**2, [w], 0.1)
    [tensor(0.4000, grad_fn=<SubBackward0>)]
    """
    slopes = torch.autograd.grad(inner, params, create_graph=True, allow_unused=True)
    if share is not None:
        slopes = tuple(None if slope is None else share(slope) for slope in slopes)
    pairs = zip(params, slopes, strict=True)
    return [p.detach() if slope is None else p.detach() - rate * slope for p, slope in pairs]


def load_adam(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load Adam's state wherever it was made: its counters lie where this device has them."""
    settings = [group["capturable"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, capturable in zip(optimizer.param_groups, settings, strict=True):
        group["capturable"] = capturable
        for parameter in group["params"]:
            own = optimizer.state.get(parameter)
            if own:
                own["step"] = own["step"].to(parameter.device if capturable else "cpu")


def picked(split: Any, at: Tensor) -> Any:
    """Return some examples of a split as a split."""
    return type(split)(split.x[at], split.y[at], split.clean[at], split.indices[at])
