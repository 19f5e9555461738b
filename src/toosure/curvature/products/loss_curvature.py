"""A model, its data and its loss as one symmetric operator on parameter space, never formed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from toosure.curvature.products import checks
from toosure.curvature.products.cuda_graphs import Replay
from toosure.curvature.products.functional_model import Mode, Reader, flat
from toosure.curvature.products.jacobian_products import (
    Call,
    Linearised,
    Slots,
    linear_layers,
    recorded,
)
from toosure.curvature.products.loss_hessian import LossLike, output_loss
from toosure.metrics.inputs import check_choice, check_count

Matrix = Literal["gn", "hessian", "fisher"]
MATRICES = ("gn", "hessian", "fisher")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Problem(Reader):
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
        mode: Mode = "eval",
        group: Any = None,
        replay: bool = False,
    ) -> None:
        super().__init__(model, parameters, mode)
        inputs, labels = checks.pair_of(data)
        if chunk is not None:
            check_count("chunk", chunk)
        self.loss, self.group = output_loss(loss), group
        place = {id(p): i for i, p in enumerate(self.originals)}
        self._slots: Slots = linear_layers(self.model, place, mode == "train")
        owned = {i for own in self._slots.values() for i in own.values() if i is not None}
        self._direct = [i for i in range(len(self.names)) if i not in owned]
        self.forward_mode = any(isinstance(m, CONVOLUTIONS) for m in self.model.modules())
        self._copy_outputs = any(getattr(m, "inplace", False) for m in self.model.modules())
        self.inputs = inputs.to(self.device)
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.to(self.dtype)
        self.labels, self.classes = checks.checked_labels(self, labels)
        if not checks.layers_are_all(self):
            self._slots, self._direct = {}, list(range(len(self.names)))
        self.chunk = chunk or checks.affordable_chunk(self)
        self.count = int(self.reduced(torch.tensor([float(len(self.inputs))]).to(self.device)))
        self.loss = checks.loss_over_all(self)
        self._kept: Linearised | None = None  # of all data, where they are one chunk
        self._logits: Tensor | None = None  # where they are several
        self._kept_versions: list[int] = []
        self.fresh = False  # whether what is kept was made since it last served a measurement
        self.replay = Replay(enabled=replay)
        self.may_be_written = replay
        if replay and (self.device.type != "cuda" or mode == "train" or self.chunked):
            raise ValueError("replay needs a GPU, eval mode and all data in one chunk")

    @property
    def layers(self) -> list[nn.Module]:
        """The layers whose parameters are differentiated, one call of each at a time."""
        return list(self._slots)

    @property
    def dense(self) -> bool:
        """Whether all parameters belong to Linear layers."""
        return not self._direct and all(type(layer) is nn.Linear for layer in self._slots)

    @property
    def chunked(self) -> bool:
        """Whether the data is too large to keep one forward pass of all of it."""
        return len(self.inputs) > self.chunk

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
            yield from (self.linearise(x, y) for x, y in self._pieces())
            return
        versions = self.versions()
        if self._kept is None or versions != self._kept_versions:
            if not self.replay.enabled:
                self._kept = None  # free the old graph before the new one is made
            self._kept = self.replay("forward", self._linearise_all)
            self._kept_versions = versions
            self.fresh = True
        yield self._kept

    def _pieces(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(self.inputs.split(self.chunk), self.labels.split(self.chunk), strict=True)

    def _linearise_all(self) -> Linearised:
        piece = self.linearise(self.inputs, self.labels)
        if self.replay.enabled and not piece.find_slopes():
            piece.push([torch.zeros_like(p) for p in piece.points])  # inside the captured pass
        return piece

    @contextmanager
    def served(self) -> Iterator[None]:
        """Let a kept pass serve what is inside if it is fresh, and nothing after it.

        Parameters changed through `.data` do not say so: only a new pass sees them.
        """
        self.check_same()
        if not self.fresh:
            self._kept_versions = []
        try:
            yield
        finally:
            self.fresh = False

    def release(self) -> None:
        """Forget the kept forward pass."""
        self._kept = self._logits = None
        self.replay.forget()

    # -- products ---------------------------------------------------------------------------

    def images(self, vectors: Tensor) -> Tensor:
        """J V for every vector: shape (k, n, C) on this process's samples."""
        if self.forward_mode:
            rows = [
                torch.cat([self.forward_jvp(x, v) for x in self.inputs.split(self.chunk)])
                for v in vectors
            ]
            return torch.stack(rows)
        parts = []
        for piece in self.chunks():

            def push(block: Tensor, piece: Linearised = piece) -> Tensor:
                return piece.images(self.split(block))

            with self.reading():
                parts.append(self.replay(f"jvp {len(vectors)}", push, vectors))
        return torch.cat(parts, 1)

    def weighted(self, images: Tensor, matrix: Matrix) -> Tensor:
        """H_z (or the Fisher's output matrix) applied to images (k, n, C)."""
        check_choice("matrix", matrix, MATRICES)
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

                own = cotangents[:, start:stop]
                total += self.replay(f"vjp {len(own)}", piece.pulled, own)
                start = stop
        return self.reduced(total) / self.count

    def pull_apart(self, cotangents: Tensor) -> tuple[Tensor, Tensor]:
        """(1/N) J^T U, and what lies outside these coordinates, (k, q): nothing, here."""
        return self.pull(cotangents), cotangents.new_zeros(len(cotangents), 1)

    def apply(self, vectors: Tensor, matrix: Matrix = "gn") -> Tensor:
        """The matrix times a block of vectors, (k, P) to (k, P), in one sweep over the data."""
        check_choice("matrix", matrix, MATRICES)
        total = torch.zeros_like(vectors)
        if self.forward_mode and matrix == "hessian":
            for x, y in self._pieces():
                loss = partial(self.loss.total, labels=y)
                for row, vector in zip(total, vectors, strict=True):
                    row += flat(self.forward_hvp(x, loss, vector))
            return self.reduced(total) / self.count
        if self.forward_mode:
            return self.pull(self.weighted(self.images(vectors), matrix))
        for piece in self.chunks():

            def products(block: Tensor, piece: Linearised = piece) -> Tensor:
                rows = self._chunk_products(piece, [self.split(v) for v in block], matrix)
                return torch.stack([flat(row) for row in rows])

            with self.reading():
                total += self.replay(f"{matrix} times {len(vectors)}", products, vectors)
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
        versions = self.versions()
        if self._logits is None or versions != self._kept_versions:
            _, state = self.state()
            with self.reading(), torch.no_grad():
                pieces = self.inputs.split(self.chunk)
                self._logits = torch.cat([functional_call(self.model, state, (x,)) for x in pieces])
            self._kept_versions, self.fresh = versions, True
        return self._logits

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
        small._kept = small._logits = None
        return small

    def reduced(self, tensor: Tensor) -> Tensor:
        """The sum over all processes of the group; the tensor itself without one."""
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def largest(self, value: Tensor) -> float:
        """The largest value over all processes; NaN if any has none."""
        if self.group is None:
            return float(value)
        finite = torch.isfinite(value)
        both = torch.stack([value.nan_to_num(0.0), (~finite).to(value)])
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self.group)
        most, bad = both.tolist()
        return float("nan") if bad else most

    def drawn(self, rows: Tensor) -> "Problem":
        """The same problem on some of all processes' samples, numbered process by process."""
        if self.group is None:
            return self.subset(rows)
        sizes = torch.zeros(dist.get_world_size(self.group), device=self.device)
        rank = dist.get_rank(self.group)
        sizes[rank] = len(self.inputs)
        first = int(self.reduced(sizes)[:rank].sum())
        here = rows[(rows >= first) & (rows < first + len(self.inputs))] - first
        small = self.subset(here)
        small.count = len(rows)
        return small

    def places(self, layer: nn.Module) -> list[int]:
        """The places of a layer's differentiated parameters in a vector."""
        return [slot for slot in self._slots[layer].values() if slot is not None]
