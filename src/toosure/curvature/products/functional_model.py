"""A model read without a trace: its parameters as vectors, its passes in a mode of our own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from toosure.curvature.products.precision import (
    double_differentiable,
    dual_numbers,
    made_dual,
    tangent_of,
)

Mode = Literal["eval", "train"]


class Reader:
    """A model, the parameters to differentiate by, and how to run it without touching it."""

    def __init__(self, model: nn.Module, parameters: Sequence[str] | None, mode: Mode) -> None:
        if mode not in ("eval", "train"):
            raise ValueError(f'mode must be "eval" or "train"; got {mode!r}')
        model = getattr(model, "_orig_mod", model)  # a compiled model wraps the one to read
        self.model = getattr(model, "module", model) if _is_parallel(model) else model
        self.mode = mode
        self.names = _chosen(self.model, parameters)
        named = dict(self.model.named_parameters())
        self.originals = [named[name] for name in self.names]
        self.shapes = [p.shape for p in self.originals]
        self.sizes = [p.numel() for p in self.originals]
        self.size = sum(self.sizes)
        self.device = self.originals[0].device
        self.dtype = _at_least_float32([p.dtype for p in self.originals])
        self._offset: list[Tensor] | None = None
        self.may_be_written = False
        self._reading = False
        self._watched = [*self.model.parameters(), *self.model.buffers()]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Put the model into our mode with a fixed random state, and everything back after.

        Inside another `reading` only the random state is set anew.
        """
        if self._reading:
            if self.mode == "train":
                torch.manual_seed(0)
            yield
            return
        modes = [(m, m.training) for m in self.model.modules()]
        devices = [self.device] if self.device.type == "cuda" and self.mode == "train" else []
        with torch.random.fork_rng(devices, enabled=self.mode == "train"), double_differentiable():
            if self.mode == "train":
                torch.manual_seed(0)  # dropout must draw the same masks at every product
            self.model.train(self.mode == "train")
            self._reading = True
            try:
                yield
            finally:
                self._reading = False
                for module, training in modes:
                    module.training = training

    def state(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Our parameters as leaves that share the model's memory, and all its state by name."""
        own = [self._alias(p).to(self.dtype) for p in self.originals]
        if self._offset is not None:
            own = [p + d for p, d in zip(own, self._offset, strict=True)]
        own = [p.requires_grad_() for p in own]
        state = {n: _cast(t.detach(), self.dtype) for n, t in self.model.named_parameters()}
        buffers = self.model.named_buffers()
        train = self.mode == "train"
        state |= {n: _cast(b.clone() if train else b, self.dtype) for n, b in buffers}
        return own, state | dict(zip(self.names, own, strict=True))

    def _alias(self, parameter: Tensor) -> Tensor:
        """The parameter's memory as a tensor of our own.

        A captured graph reads that memory anew at every replay, so it may change under it: there
        `.data`, which does not count writes. Elsewhere writes are counted, and autograd refuses
        a pass that they made stale.
        """
        return parameter.data if self.may_be_written else parameter.detach()

    def versions(self) -> list[int]:
        """Numbers that move on whenever a parameter or a buffer is written to."""
        return [t._version for t in self._watched]

    def check_same(self) -> None:
        """Raise where parameters of the model were replaced by others since it was first read."""
        named = dict(self.model.named_parameters())
        pairs = zip(self.names, self.originals, strict=True)
        other = [name for name, p in pairs if named.get(name) is not p]
        if other:
            raise ValueError(
                f"the model's parameters {other} are not those it had: what was replaced is not "
                "followed. Make a new tracker"
            )

    @contextmanager
    def displaced(self, vector: Tensor) -> Iterator[None]:
        """Work at theta + vector inside the context; the model itself does not move."""
        self._offset = self.split(vector.to(self.device, self.dtype))
        self.release()
        try:
            yield
        finally:
            self._offset = None
            self.release()

    def release(self) -> None:
        """Forget what was kept of earlier passes."""

    def split(self, vector: Tensor) -> list[Tensor]:
        """A flat vector, or a block of them, as tensors shaped like the parameters."""
        parts = vector.split(self.sizes, dim=-1)
        return [p.view(*p.shape[:-1], *shape) for p, shape in zip(parts, self.shapes, strict=True)]

    def forward_jvp(self, inputs: Tensor, vector: Tensor) -> Tensor:
        """J v in forward mode: second derivatives of convolutions are slow, this is not."""
        own, state = self.state()
        with self.reading(), torch.no_grad(), dual_numbers():
            duals = made_dual([p.detach() for p in own], self.split(vector))
            state |= dict(zip(self.names, duals, strict=True))
            return tangent_of(functional_call(self.model, state, (inputs,)))

    def forward_hvp(
        self, inputs: Tensor, loss: Callable[[Tensor], Tensor], vector: Tensor
    ) -> list[Tensor]:
        """H v of a loss of the logits, forward over reverse, one tensor a parameter."""
        own, state = self.state()
        with self.reading(), dual_numbers():
            duals = made_dual(own, self.split(vector))
            state |= dict(zip(self.names, duals, strict=True))
            total = loss(functional_call(self.model, state, (inputs,)))
            found = torch.autograd.grad(total, own, allow_unused=True, materialize_grads=True)
            return [tangent_of(g) for g in found]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined into one vector."""
    return torch.cat([t.reshape(-1) for t in tensors])


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _is_parallel(model: nn.Module) -> bool:
    return isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)


def _at_least_float32(dtypes: list[torch.dtype]) -> torch.dtype:
    return torch.float64 if torch.float64 in dtypes else torch.float32


def _chosen(model: nn.Module, wanted: Sequence[str] | None) -> list[str]:
    """The names of the parameters to differentiate by: those that require grad, or a choice."""
    free = [name for name, p in model.named_parameters() if p.requires_grad]
    if wanted is None:
        chosen = free
    else:
        chosen = [n for n in free if any(fnmatchcase(n, pattern) for pattern in wanted)]
        missing = [w for w in wanted if not any(fnmatchcase(n, w) for n in free)]
        if missing:
            raise ValueError(f"no free parameter matches {missing}; the model has {free}")
    if not chosen:
        raise ValueError("the model has no parameters that require grad: nothing to differentiate")
    return chosen
