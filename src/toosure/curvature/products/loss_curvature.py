"""The curvature of a model's mean loss as products of matrices that are never formed."""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from toosure.curvature.products.chunked_model import ChunkedModel
from toosure.curvature.products.cuda_graphs import GraphCache
from toosure.curvature.products.functional_model import Mode, ParameterChoice, flat
from toosure.curvature.products.jacobian_products import LinearisedChunk
from toosure.curvature.products.loss_hessian import (
    LossLike,
    OutputLoss,
    output_loss,
    over_all_samples,
)
from toosure.metrics.inputs import check_choice

Matrix = Literal["gn", "hessian", "fisher"]
MATRICES = ("gn", "hessian", "fisher")
T = TypeVar("T")


class LossCurvature(ChunkedModel):
    """Products of G, H or F with blocks of vectors, over the whole data in chunks.

    G = (1/N) sum_i J_i^T H_z J_i is the Gauss-Newton matrix, H the Hessian of the mean loss, F the
    Fisher matrix (G with the Hessian of cross-entropy). Vectors are flat, (k, P), in the order of
    `model.named_parameters()`. Everything is a mean over all N samples; chunks count by their
    size. With a `group`, each process holds its own shard of the data, and one all-reduce per
    product makes all answers equal. With `replay` (on a GPU, all data in one chunk) every pass is
    captured once and replayed as a CUDA graph. The model is only read: its mode, buffers, `.grad`,
    `requires_grad` and the random state stay as they are.
    """

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Tensor, Tensor],
        loss: LossLike = "ce",
        *,
        parameters: ParameterChoice | None = None,
        chunk: int | None = None,
        mode: Mode = "eval",
        group: dist.ProcessGroup | None = None,
        replay: bool = False,
    ) -> None:
        super().__init__(model, data, loss, parameters, chunk, mode)
        self.group = group
        self.count = int(self.reduce_sum(torch.tensor([float(len(self.inputs))]).to(self.device)))
        self.loss = over_all_samples(self.loss, self.labels, self.count, self.reduce_sum)

        self.graphs = GraphCache(enabled=replay)
        self.writable_under_graphs = replay
        if replay and (self.device.type != "cuda" or mode == "train" or self.chunked):
            raise ValueError("replay needs a GPU, eval mode and all data in one chunk")

    # -- products ---------------------------------------------------------------------------

    def images(self, vectors: Tensor) -> Tensor:
        """Compute J V for every vector: shape (k, n, C) on this process's samples."""
        if self.forward_mode:
            rows = [
                torch.cat([self.forward_jvp(x, v) for x in self.inputs.split(self.chunk)])
                for v in vectors
            ]
            return torch.stack(rows)

        parts = []
        for chunk in self.chunks():

            def push(block: Tensor, chunk: LinearisedChunk = chunk) -> Tensor:
                return chunk.images(self.split(block))

            with self.temporary_mode():
                parts.append(self.graphs(f"jvp {len(vectors)}", push, vectors))
        return torch.cat(parts, 1)

    def weighted(self, images: Tensor, matrix: Matrix) -> Tensor:
        """Apply H_z (or the Fisher's output matrix) to images (k, n, C): weighted(Jv) = H_z J v."""
        return self._output_loss(matrix).hessian(self.logits(), self.labels, images)

    def _output_loss(self, matrix: Matrix) -> OutputLoss:
        """Return the loss with the output Hessian in the middle of a matrix."""
        check_choice("matrix", matrix, MATRICES)
        return output_loss("ce") if matrix == "fisher" else self.loss

    def pull(self, cotangents: Tensor) -> Tensor:
        """Compute (1/N) J^T U for every cotangent (k, n, C): shape (k, P), over all processes."""
        total = torch.zeros(len(cotangents), self.size, dtype=self.dtype, device=self.device)
        start = 0
        with self.temporary_mode():
            for chunk in self.chunks():
                stop = start + len(chunk.logits)
                own = cotangents[:, start:stop]
                total += self.graphs(f"vjp {len(own)}", chunk.pull, own)
                start = stop
        return self.reduce_sum(total) / self.count

    def pull_inside_and_outside(self, cotangents: Tensor) -> tuple[Tensor, Tensor]:
        """Compute (1/N) J^T U, and the part that these coordinates miss, (k, q): none here."""
        return self.pull(cotangents), cotangents.new_zeros(len(cotangents), 1)

    def apply(self, vectors: Tensor, matrix: Matrix = "gn") -> Tensor:
        """Multiply a block of vectors by a matrix, (k, P) to (k, P), in one sweep over the data."""
        check_choice("matrix", matrix, MATRICES)
        total = torch.zeros_like(vectors)
        if self.forward_mode and matrix == "hessian":
            for x, y in self.data_chunks():
                loss = partial(self.loss.total, labels=y)
                for row, vector in zip(total, vectors, strict=True):
                    row += flat(self.forward_hvp(x, loss, vector))
            return self.reduce_sum(total) / self.count
        if self.forward_mode:
            return self.pull(self.weighted(self.images(vectors), matrix))

        for chunk in self.chunks():
            products = partial(self._chunk_products, chunk, matrix)
            with self.temporary_mode():
                total += self.graphs(f"{matrix} times {len(vectors)}", products, vectors)
        return self.reduce_sum(total) / self.count

    def _chunk_products(self, chunk: LinearisedChunk, matrix: Matrix, block: Tensor) -> Tensor:
        """Multiply a block of vectors (k, P) by one chunk's sum."""
        vectors = [self.split(v) for v in block]
        if matrix == "hessian":
            total = self.loss.total(chunk.logits, chunk.labels)
            return torch.stack([flat(row) for row in chunk.hvp(total, vectors)])

        loss = self._output_loss(matrix)
        logits = chunk.logits.detach()
        rows = []
        for vector in vectors:
            weighted = loss.hessian(logits, chunk.labels, chunk.jvp(vector))
            rows.append(flat(chunk.vjp(weighted)))
        return torch.stack(rows)

    def gradient(self) -> tuple[Tensor, Tensor]:
        """Compute the mean loss (a 0-d tensor) and its gradient (P,)."""
        total = torch.zeros(self.size + 1, dtype=self.dtype, device=self.device)
        for chunk in self.chunks():
            with self.temporary_mode():
                value = self.loss.total(chunk.logits, chunk.labels)
                (cotangent,) = torch.autograd.grad(value, chunk.logits, retain_graph=True)
                total += torch.cat([flat(chunk.vjp(cotangent)), value.detach()[None]])
        total = self.reduce_sum(total) / self.count
        return total[-1], total[:-1]

    # -- CUDA graphs of algebra around these products -----------------------------------------

    @property
    def replays_jacobian(self) -> bool:
        """Whether Jacobian products are replayed as CUDA graphs; in forward mode they are not."""
        return self.graphs.enabled and not self.forward_mode

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        """Call a function that uses these products, as a graph if enabled; return its numbers."""
        self.refresh_pass()  # a graph of its own, replayed when weights have moved

        def in_mode(*places: Tensor) -> Tensor:
            with self.temporary_mode():
                return function(*places)

        return self.graphs.to_host(name, in_mode, *arguments)

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Make an object once; it lives as long as the graphs that read and write it."""
        return self.graphs.cached(name, make)

    # -- fewer samples, more processes --------------------------------------------------------

    def subset(self, rows: Tensor) -> "LossCurvature":
        """Return the curvature of the loss on some of this process's samples."""
        small = copy(self)
        small.inputs = self.inputs[rows]
        small.labels = self.labels[rows]
        small.count = len(rows)
        small.graphs = GraphCache(enabled=False)
        small._cached_pass = None
        small._cached_logits = None
        return small

    def subset_of_all(self, rows: Tensor) -> "LossCurvature":
        """Return the curvature on some samples of all processes, numbered process by process."""
        if self.group is None:
            return self.subset(rows)

        sizes = torch.zeros(dist.get_world_size(self.group), device=self.device)
        rank = dist.get_rank(self.group)
        sizes[rank] = len(self.inputs)
        first = int(self.reduce_sum(sizes)[:rank].sum())

        own_rows = rows[(rows >= first) & (rows < first + len(self.inputs))] - first
        small = self.subset(own_rows)
        small.count = len(rows)
        return small

    def reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes of the group, in place; without a group, leave it."""
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def reduce_max(self, value: Tensor) -> float:
        """Return the largest value over all processes; NaN if it is not finite on any of them."""
        if self.group is None:
            return float(value)
        finite = torch.isfinite(value)
        both = torch.stack([value.nan_to_num(0.0), (~finite).to(value)])
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self.group)
        largest, any_bad = both.tolist()
        return float("nan") if any_bad else largest
