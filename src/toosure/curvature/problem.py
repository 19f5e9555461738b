"""A model, its data and its loss as one symmetric operator on parameter space, never formed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from toosure.curvature.linearise import (
    Call,
    Linearised,
    Slots,
    double_differentiable,
    linear_layers,
    recorded,
)
from toosure.curvature.outputs import LossLike, output_loss
from toosure.curvature.replay import Replay
from toosure.metrics.inputs import as_labels

Matrix = Literal["gn", "hessian", "fisher"]
MATRICES = ("gn", "hessian", "fisher")
KEEP_BYTES = 4 << 30


class Problem:
    """Products of G, H or F with blocks of vectors, over the whole data in chunks.

    Vectors are flat, (k, P), in the order of `model.named_parameters()`. Everything is a mean
    over all N samples; chunks count by their size. With a `group`, each process holds its own
    shard of the data and one all-reduce a product makes all answers equal. With `replay` (on a
    GPU, all data in one chunk) every pass is captured once and replayed as a CUDA graph. The
    model is only read: its mode, buffers, `.grad`, `requires_grad` and the random state stay.
    """

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Tensor, Tensor],
        loss: LossLike = "ce",
        *,
        parameters: Sequence[str] | None = None,
        chunk: int | None = None,
        mode: Literal["eval", "train"] = "eval",
        group: Any = None,
        replay: bool = False,
    ) -> None:
        if mode not in ("eval", "train"):
            raise ValueError(f'mode must be "eval" or "train"; got {mode!r}')
        model = getattr(model, "_orig_mod", model)  # a compiled model wraps the one to read
        self.model = getattr(model, "module", model) if _is_parallel(model) else model
        self.loss, self.mode, self.group = output_loss(loss), mode, group
        self.names = _chosen(self.model, parameters)
        named = dict(self.model.named_parameters())
        self.originals = [named[name] for name in self.names]
        self.shapes = [p.shape for p in self.originals]
        self.sizes = [p.numel() for p in self.originals]
        self.size = sum(self.sizes)
        self.device = self.originals[0].device
        self.dtype = _at_least_float32([p.dtype for p in self.originals])
        place = {id(p): i for i, p in enumerate(self.originals)}
        self._slots: Slots = linear_layers(self.model, place, mode == "train")
        owned = {i for own in self._slots.values() for i in own.values() if i is not None}
        self._direct = [i for i in range(len(self.names)) if i not in owned]
        self._copy_outputs = any(getattr(m, "inplace", False) for m in self.model.modules())
        self.inputs = data[0].to(self.device)
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.to(self.dtype)
        self.labels = data[1]
        self._offset: list[Tensor] | None = None
        self._check_data()
        self.chunk = chunk or self._affordable_chunk()
        self.count = int(self.reduced(torch.tensor([float(len(self.inputs))]).to(self.device)))
        self._kept: Linearised | None = None
        self._kept_versions: list[int] = []
        self.replay = Replay(enabled=replay)
        if replay and (self.device.type != "cuda" or mode == "train" or self.chunked):
            raise ValueError("replay needs a GPU, eval mode and all data in one chunk")

    @property
    def layers(self) -> list[nn.Module]:
        """The layers whose parameters are differentiated, one call of each at a time."""
        return list(self._slots)

    @property
    def chunked(self) -> bool:
        """Whether the data is too large to keep one forward pass of all of it."""
        return len(self.inputs) > self.chunk

    # -- the model, read without a trace ---------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Put the model into our mode with a fixed random state, and everything back after."""
        modes = [(m, m.training) for m in self.model.modules()]
        devices = [self.device] if self.device.type == "cuda" and self.mode == "train" else []
        with torch.random.fork_rng(devices, enabled=self.mode == "train"), double_differentiable():
            if self.mode == "train":
                torch.manual_seed(0)  # dropout must draw the same masks at every product
            self.model.train(self.mode == "train")
            try:
                yield
            finally:
                for module, training in modes:
                    module.training = training

    def state(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Our parameters as leaves that share the model's memory, and all its state by name."""
        own = [p.detach().to(self.dtype) for p in self.originals]
        if self._offset is not None:
            own = [p + d for p, d in zip(own, self._offset, strict=True)]
        own = [p.requires_grad_() for p in own]
        state = {n: _cast(t.detach(), self.dtype) for n, t in self.model.named_parameters()}
        buffers = self.model.named_buffers()
        train = self.mode == "train"
        state |= {n: _cast(b.clone() if train else b, self.dtype) for n, b in buffers}
        return own, state | dict(zip(self.names, own, strict=True))

    def linearise(self, inputs: Tensor, labels: Tensor) -> Linearised:
        """Run the model once on a chunk and keep what products need."""
        own, state = self.state()
        with self.reading(), recorded(self._slots, self._copy_outputs) as calls:
            logits = functional_call(self.model, state, (inputs,))
        if any(c.output._version != c.version for c in calls):  # somebody wrote into an output
            self._copy_outputs = True
            return self.linearise(inputs, labels)
        if logits.shape != (len(inputs), self.classes):
            shape, expected = tuple(logits.shape), (len(inputs), self.classes)
            raise ValueError(
                f"the model must give one row of logits a sample: {expected}, not {shape}"
            )
        return Linearised(logits, labels, own, list[Call](calls), self._direct)

    def chunks(self) -> Iterator[Linearised]:
        """The whole data, linearised; one chunk is kept until a parameter changes."""
        if self.chunked:
            pieces = zip(self.inputs.split(self.chunk), self.labels.split(self.chunk), strict=True)
            yield from (self.linearise(x, y) for x, y in pieces)
            return
        versions = [p._version for p in self.originals]
        if self._kept is None or versions != self._kept_versions:
            if not self.replay.enabled:
                self._kept = None  # free the old graph before the new one is made
            self._kept = self.replay("forward", self._linearise_all)
            self._kept_versions = versions
        yield self._kept

    def _linearise_all(self) -> Linearised:
        piece = self.linearise(self.inputs, self.labels)
        if self.replay.enabled:  # its pull-back graph must lie inside the captured pass
            piece.push([torch.zeros_like(p) for p in piece.points])
        return piece

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
        """Forget the kept forward pass."""
        self._kept = None
        self.replay.forget()

    # -- products ---------------------------------------------------------------------------

    def split(self, vector: Tensor) -> list[Tensor]:
        """One flat vector as tensors shaped like the parameters."""
        blocks = vector.split(self.sizes)
        return [b.view(shape) for b, shape in zip(blocks, self.shapes, strict=True)]

    def images(self, vectors: Tensor) -> Tensor:
        """J V for every vector: shape (k, n, C) on this process's samples."""
        with self.reading():
            parts = [
                torch.stack(
                    [
                        self.replay("jvp", lambda v, p=piece: p.jvp(self.split(v)), v)
                        for v in vectors
                    ]
                )
                for piece in self.chunks()
            ]
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def weighted(self, images: Tensor, matrix: Matrix) -> Tensor:
        """H_z (or the Fisher's output matrix) applied to images (k, n, C)."""
        logits = self.logits()
        if matrix == "fisher":
            return output_loss("ce").hessian(logits, self.labels, images)
        return self.loss.hessian(logits, self.labels, images)

    def pull(self, cotangents: Tensor) -> Tensor:
        """(1/N) J^T U for every cotangent (k, n, C): shape (k, P), reduced over processes."""
        total = torch.zeros(len(cotangents), self.size, dtype=self.dtype, device=self.device)
        start = 0
        with self.reading():
            for piece in self.chunks():
                stop = start + len(piece.logits)
                for row, u in zip(total, cotangents[:, start:stop], strict=True):
                    row += self.replay("vjp", lambda u, p=piece: flat(p.vjp(u)), u)
                start = stop
        return self.reduced(total) / self.count

    def apply(self, vectors: Tensor, matrix: Matrix = "gn") -> Tensor:
        """The matrix times a block of vectors, (k, P) to (k, P), in one sweep over the data."""
        total = torch.zeros_like(vectors)
        for piece in self.chunks():
            with self.reading():
                products = self._chunk_products(piece, [self.split(v) for v in vectors], matrix)
                for row, product in zip(total, products, strict=True):
                    row += flat(product)
        return self.reduced(total) / self.count

    def _chunk_products(
        self, piece: Linearised, vectors: list[list[Tensor]], matrix: Matrix
    ) -> Iterator[list[Tensor]]:
        if matrix == "hessian":
            yield from piece.hvp(self.loss.total(piece.logits, piece.labels), vectors)
            return
        loss = output_loss("ce") if matrix == "fisher" else self.loss
        logits = piece.logits.detach()
        for vector in vectors:
            yield piece.vjp(loss.hessian(logits, piece.labels, piece.jvp(vector)))

    # -- the loss itself --------------------------------------------------------------------

    def logits(self) -> Tensor:
        """The model's outputs on this process's samples, (n, C), without a graph."""
        if not self.chunked:
            (piece,) = self.chunks()
            return piece.logits.detach()
        _, state = self.state()
        with self.reading(), torch.no_grad():
            pieces = self.inputs.split(self.chunk)
            return torch.cat([functional_call(self.model, state, (x,)) for x in pieces])

    def gradient(self) -> tuple[Tensor, Tensor]:
        """The mean loss (a 0-d tensor) and its gradient (P,)."""
        total = torch.zeros(self.size + 1, dtype=self.dtype, device=self.device)
        for piece in self.chunks():
            with self.reading():
                value = self.loss.total(piece.logits, piece.labels)
                (cotangent,) = torch.autograd.grad(value, piece.logits, retain_graph=True)
                total += torch.cat([flat(piece.vjp(cotangent)), value.detach()[None]])
        total = self.reduced(total) / self.count
        return total[-1], total[:-1]

    def subset(self, rows: Tensor) -> "Problem":
        """The same problem on some of the samples."""
        small = copy(self)
        small.inputs, small.labels = self.inputs[rows], self.labels[rows]
        small.count, small.replay = len(rows), Replay(enabled=False)
        small._kept = None
        return small

    def reduced(self, tensor: Tensor) -> Tensor:
        """The sum over all processes of the group; the tensor itself without one."""
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    # -- checks -----------------------------------------------------------------------------

    def _check_data(self) -> None:
        n = len(self.inputs)
        if n == 0:
            raise ValueError("data is empty: curvature needs at least one sample")
        _, state = self.state()
        with self.reading(), torch.no_grad():
            logits = functional_call(self.model, state, (self.inputs[: min(n, 2)],))
        if not torch.is_tensor(logits) or logits.ndim != 2 or len(logits) != min(n, 2):
            shape = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
            raise ValueError(f"the model must return logits of shape (N, C); got {shape}")
        self.classes = logits.shape[1]
        self.labels = as_labels(self.labels, n, self.classes).to(self.device)
        value = self.loss.total(logits, self.labels[: len(logits)])
        if bool(torch.isfinite(logits).all()) and not bool(torch.isfinite(value)):
            raise ValueError(f"the loss is not finite on finite logits: it gave {float(value)}")

    def _affordable_chunk(self) -> int:
        """How many samples' graphs fit into KEEP_BYTES, from what two samples save."""
        n = min(2, len(self.inputs))
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            saved[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            piece = self.linearise(self.inputs[:n], self.labels[:n])
        own = {p.data_ptr() for p in piece.parameters}
        each = sum(size for pointer, size in saved.items() if pointer not in own) / n
        return max(1, min(len(self.inputs), int(KEEP_BYTES / (2 * max(each, 1.0)))))


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
