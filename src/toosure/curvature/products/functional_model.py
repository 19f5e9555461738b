"""A functional view of a model; its mode, buffers and random state stay unchanged."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from glob import escape
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from toosure.curvature.products.forward_mode import (
    composed_activations,
    dual_numbers,
    make_duals,
    tangent_of,
)
from toosure.curvature.products.odd_layers import (
    check_parameters,
    composed_weight_norm,
    dense_embeddings,
    missing_derivatives_explained,
)
from toosure.curvature.products.precision import double_differentiable
from toosure.processes.wrappers import unwrapped

Mode = Literal["eval", "train"]
ParameterChoice = Iterable[str | Tensor]  # names, patterns of names, or parameters themselves


class FunctionalModel:
    """A model as a function of a chosen set of its parameters.

    Vectors in parameter space are flat, in the order of `model.named_parameters()`.
    """

    def __init__(self, model: nn.Module, parameters: ParameterChoice | None, mode: Mode) -> None:
        if mode not in ("eval", "train"):
            raise ValueError(f'mode must be "eval" or "train"; got {mode!r}')

        self.model = unwrapped(model)
        self.mode = mode

        self.names = choose_parameters(self.model, parameters)
        named = dict(self.model.named_parameters())
        check_parameters(named, self.names)
        self.originals = [named[name] for name in self.names]
        self.shapes = [p.shape for p in self.originals]
        self.sizes = [p.numel() for p in self.originals]
        self.size = sum(self.sizes)
        self.device = self.originals[0].device
        self.dtype = _at_least_float32([p.dtype for p in self.originals])

        self.writable_under_graphs = False  # see `_alias`
        self._offset: list[Tensor] | None = None
        self._in_temporary_mode = False
        self._versioned = [*self.model.parameters(), *self.model.buffers()]

    @property
    def vector_like(self) -> Tensor:
        """An empty block of vectors, (0, P), with the device and type that vectors have."""
        return torch.empty(0, self.size, dtype=self.dtype, device=self.device)

    @contextmanager
    def temporary_mode(self) -> Iterator[None]:
        """Put the model into our mode with a fixed random state, and restore both afterwards.

        A nested context only sets the random state again.
        """
        train = self.mode == "train"
        if self._in_temporary_mode:
            if train:
                torch.manual_seed(0)
            yield
            return

        modes = [(m, m.training) for m in self.model.modules()]
        devices = [self.device] if self.device.type == "cuda" and train else []
        with (
            missing_derivatives_explained(),
            torch.random.fork_rng(devices, enabled=train),
            double_differentiable(),
            dense_embeddings(self.model),
            composed_weight_norm(self.model),
        ):
            if train:
                torch.manual_seed(0)  # dropout must draw the same masks at every product
            self.model.train(train)
            self._in_temporary_mode = True
            try:
                yield
            finally:
                self._in_temporary_mode = False
                for module, training in modes:
                    module.training = training

    def state(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the chosen parameters as leaves that share the model's memory, and all its state.

        The state maps names to tensors and contains these leaves.
        """
        leaves = [self._alias(p).to(self.dtype) for p in self.originals]
        if self._offset is not None:
            leaves = [p + d for p, d in zip(leaves, self._offset, strict=True)]
        leaves = [p.requires_grad_() for p in leaves]

        state = {n: _cast(t.detach(), self.dtype) for n, t in self.model.named_parameters()}
        for name, buffer in self.model.named_buffers():
            # In train mode a pass writes running statistics: let it write into copies.
            own = buffer.clone() if self.mode == "train" else buffer
            state[name] = _cast(own, self.dtype)
        return leaves, state | dict(zip(self.names, leaves, strict=True))

    def _alias(self, parameter: Tensor) -> Tensor:
        """Return a new tensor on the parameter's memory.

        A captured CUDA graph reads this memory again at every replay, so training may write to it
        in between: `.data` does not count writes. Without graphs writes are counted, and autograd
        refuses to use a stale pass.
        """
        return parameter.data if self.writable_under_graphs else parameter.detach()

    def versions(self) -> list[int]:
        """Return counters that increase whenever a parameter or a buffer is written to."""
        return [t._version for t in self._versioned]

    def check_same_parameters(self) -> None:
        """Raise if parameters of the model were replaced since this object was made."""
        named = dict(self.model.named_parameters())
        pairs = zip(self.names, self.originals, strict=True)
        replaced = [name for name, p in pairs if named.get(name) is not p]
        if replaced:
            raise ValueError(
                f"parameters {replaced} were replaced since the tracker was made: make a new "
                "tracker"
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
        """Free cached passes: there are none here."""

    def split(self, vector: Tensor) -> list[Tensor]:
        """Split a flat vector, or a block of them, into tensors shaped like the parameters."""
        return split_blocks(vector, self.sizes, self.shapes)

    def forward_jvp(self, inputs: Tensor, vector: Tensor) -> Tensor:
        """Compute J v in forward mode, which avoids the slow second derivatives of convolutions."""
        leaves, state = self.state()
        with self.temporary_mode(), torch.no_grad(), dual_numbers():
            duals = make_duals([p.detach() for p in leaves], self.split(vector))
            state |= dict(zip(self.names, duals, strict=True))
            return tangent_of(functional_call(self.model, state, (inputs,)))

    def forward_hvp(
        self, inputs: Tensor, loss: Callable[[Tensor], Tensor], vector: Tensor
    ) -> list[Tensor]:
        """Compute H v of a loss of the logits, forward over reverse: one tensor per parameter."""
        leaves, state = self.state()
        with self.temporary_mode(), dual_numbers(), composed_activations():
            duals = make_duals(leaves, self.split(vector))
            state |= dict(zip(self.names, duals, strict=True))
            total = loss(functional_call(self.model, state, (inputs,)))
            slopes = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
            return [tangent_of(slope) for slope in slopes]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors into one vector."""
    return torch.cat([t.reshape(-1) for t in tensors])


def split_blocks(vector: Tensor, sizes: list[int], shapes: list[torch.Size]) -> list[Tensor]:
    """Split the last axis of a vector, or of a block (k, P), into tensors of given shapes."""
    parts = vector.split(sizes, dim=-1)
    return [p.view((*p.shape[:-1], *shape)) for p, shape in zip(parts, shapes, strict=True)]


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _at_least_float32(dtypes: list[torch.dtype]) -> torch.dtype:
    return torch.float64 if torch.float64 in dtypes else torch.float32


def as_patterns(model: nn.Module, choice: ParameterChoice) -> list[str]:
    """Return a choice of parameters as patterns of names; a parameter becomes its name."""
    names = {id(p): name for name, p in unwrapped(model).named_parameters()}
    patterns = []
    for each in [choice] if isinstance(choice, str) else choice:
        if not isinstance(each, str) and id(each) not in names:
            raise ValueError(
                "parameters holds names or patterns (head.*), or parameters of the model; got "
                f"{type(each).__name__}" + " of another" * isinstance(each, Tensor)
            )
        patterns.append(each if isinstance(each, str) else escape(names[id(each)]))
    return patterns


def choose_parameters(model: nn.Module, choice: ParameterChoice | None) -> list[str]:
    """Return the names of the parameters to differentiate by: all free ones, or a choice."""
    free = [name for name, p in model.named_parameters() if p.requires_grad]
    if choice is None:
        chosen = free
    else:
        patterns = as_patterns(model, choice)
        chosen = [n for n in free if any(fnmatchcase(n, pattern) for pattern in patterns)]
        missing = [w for w in patterns if not any(fnmatchcase(n, w) for n in free)]
        if missing:
            raise ValueError(f"no free parameter matches {missing}; the model has {free}")

    if not chosen:
        raise ValueError("the model has no parameters that require grad: nothing to differentiate")
    return chosen
