"""Curvature inside the span of the inputs' leading singular vectors, where inputs are fixed.

The gradient of a dense first layer is a sum of outer products b_i x_i^T, so eigenvectors of the
Gauss-Newton matrix lie in the row space of the inputs, and mostly in its leading directions. With
W = C Q^T the first layer costs rank / in_features of what it did. The residual of a Ritz vector
outside these directions is M = sum_i b_i (x_i - Q Q^T x_i)^T. Its length is estimated with every
product from M S, where S is a fixed random matrix (Johnson and Lindenstrauss 1984); that costs as
much as SKETCH more directions. So a value found here is judged in the whole space.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.curvature.products.functional_model import flat, split_blocks
from toosure.curvature.products.jacobian_products import LinearisedChunk, gradients
from toosure.curvature.products.layer_calls import Slots
from toosure.curvature.products.loss_curvature import LossCurvature, Matrix

SKETCH = 64  # |M S|^2 is below half of |M|^2 with a chance of 3e-4 at most (chi^2 of 64)
T = TypeVar("T")


class InputSubspace:
    """A loss curvature in the coordinates (C, the other parameters), where W = C Q^T.

    It offers the products that a Gauss-Newton operator needs, like `LossCurvature` itself.
    """

    def __init__(self, whole: LossCurvature, rank: int) -> None:
        slots = first_dense_layer(whole)
        assert slots["weight"] is not None
        self.whole = whole
        self.count = whole.count
        self.weight = slots["weight"]
        self.bias = slots.get("bias")

        inputs = whole.inputs.flatten(1)
        self.rank = min(rank, *inputs.shape)
        self.features = inputs.shape[1]
        with torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
            torch.manual_seed(0)
            basis = torch.svd_lowrank(inputs, min(self.rank + 20, *inputs.shape), niter=4)[2]
        self.basis = basis[:, : self.rank].contiguous()  # Q, (in, rank), orthonormal columns
        self.inputs = inputs @ self.basis  # (n, rank)

        # The sketch: random mixtures of what the inputs have outside of Q.
        generator = torch.Generator().manual_seed(0)
        mixed = torch.randn(self.features, SKETCH, generator=generator).to(inputs) / SKETCH**0.5
        outside = inputs @ mixed - self.inputs @ (self.basis.T @ mixed)  # (n, SKETCH)
        self.inputs_and_sketch = torch.cat([self.inputs, outside], 1)

        self.shapes = list(whole.shapes)
        self.shapes[self.weight] = torch.Size((whole.shapes[self.weight][0], self.rank))
        self.sizes = [shape.numel() for shape in self.shapes]
        self.size = sum(self.sizes)
        self.dtype = whole.dtype
        self.device = whole.device

    @property
    def vector_like(self) -> Tensor:
        """An empty block of vectors in these coordinates, (0, size)."""
        return torch.empty(0, self.size, dtype=self.dtype, device=self.device)

    def split(self, vector: Tensor) -> list[Tensor]:
        """Split a vector in these coordinates, or a block of them, into tensors per parameter."""
        return split_blocks(vector, self.sizes, self.shapes)

    def _chunk(self) -> LinearisedChunk:
        (chunk,) = self.whole.chunks()
        return chunk

    # -- products -----------------------------------------------------------------------------

    def images(self, vectors: Tensor) -> Tensor:
        """Compute J V for every vector in these coordinates: (k, n, C)."""
        self.whole.refresh_pass()
        with self.whole.temporary_mode():
            name = f"jvp {len(vectors)} in {self.rank}"
            return self.whole.graphs(name, self._push_all, vectors)

    def _push_all(self, vectors: Tensor) -> Tensor:
        chunk = self._chunk()
        if chunk.in_blocks(vectors):
            return chunk.jvps(self.split(vectors), first=self.inputs)
        return torch.stack([self._push(v) for v in vectors])

    def _push(self, vector: Tensor) -> Tensor:
        """Compute J v for one vector in these coordinates, layer by layer."""
        chunk = self._chunk()
        blocks = self.split(vector)
        bias = None if self.bias is None else blocks[self.bias]
        changes = [F.linear(self.inputs, blocks[self.weight], bias)]
        changes += [call.output_change(blocks) for call in chunk.calls[1:]]
        return chunk.push_forward(changes + [blocks[i] for i in chunk.direct])

    def weighted(self, images: Tensor, matrix: Matrix) -> Tensor:
        """Apply H_z to images: these are in output space, where nothing is restricted."""
        return self.whole.weighted(images, matrix)

    def pull_inside_and_outside(self, cotangents: Tensor) -> tuple[Tensor, Tensor]:
        """Compute (1/N) J^T U in these coordinates, (k, P), and a sketch of the rest, (k, q)."""
        self.whole.refresh_pass()
        with self.whole.temporary_mode():
            name = f"vjp {len(cotangents)} in {self.rank}"
            pulled = self.whole.graphs(name, self._pull_all, cotangents / self.count)
        return pulled[:, : self.size], pulled[:, self.size :]

    def _pull_all(self, cotangents: Tensor) -> Tensor:
        chunk = self._chunk()
        if not chunk.in_blocks(cotangents):
            return torch.stack([self._pull(u) for u in cotangents])
        return self._join_blocks(chunk.vjps(cotangents, first=self.inputs_and_sketch))

    def _pull(self, cotangent: Tensor) -> Tensor:
        """Compute J^T u for one cotangent, with the sketch of the rest behind it."""
        chunk = self._chunk()
        own = [i for i in (self.weight, self.bias) if i is not None]
        others = [i for i in range(len(self.shapes)) if i not in own]

        # Autograd up to the first layer's output; its weight's gradient needs few inputs only.
        targets = [chunk.calls[0].output, *(chunk.parameters[i] for i in others)]
        outer, *rest = gradients(chunk.logits, targets, cotangent)
        blocks = {i: block[None] for i, block in zip(others, rest, strict=True)}
        blocks[self.weight] = (outer.T @ self.inputs_and_sketch)[None]
        if self.bias is not None:
            blocks[self.bias] = outer.sum(0)[None]
        return self._join_blocks(blocks)[0]

    def _join_blocks(self, blocks: dict[int, Tensor]) -> Tensor:
        """Join blocks (k, ...) to vectors in these coordinates, with the sketch behind them."""
        inside, outside = blocks[self.weight].tensor_split([self.rank], dim=2)
        parts = [inside if i == self.weight else blocks[i] for i in range(len(self.shapes))]
        return torch.cat([part.reshape(len(part), -1) for part in [*parts, outside]], 1)

    def reduce_sum(self, tensor: Tensor) -> Tensor:
        """Return the tensor: a subspace needs all data on one process."""
        return tensor

    # -- what an operator asks about graphs ---------------------------------------------------

    @property
    def dense(self) -> bool:
        """Whether all parameters belong to Linear layers."""
        return self.whole.dense

    @property
    def replays_jacobian(self) -> bool:
        """Whether Jacobian products are replayed as CUDA graphs."""
        return self.whole.replays_jacobian

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        """Call a function that uses these products, as a graph if enabled; return its numbers."""
        return self.whole.to_host(name, function, *arguments)

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Make an object once; it lives as long as the graphs that read and write it."""
        return self.whole.cached(name, make)

    # -- coordinates of other spaces ----------------------------------------------------------

    def lift(self, vectors: Tensor) -> Tensor:
        """Turn vectors of these coordinates into vectors of the whole space, (k, P)."""
        return self._map_weight(vectors, self.basis.T)

    def carry_to(self, wider: "InputSubspace", vectors: Tensor) -> Tensor:
        """Turn vectors of these coordinates into coordinates of a wider subspace."""
        return self._map_weight(vectors, self.basis.T @ wider.basis)

    def _map_weight(self, vectors: Tensor, matrix: Tensor) -> Tensor:
        """Multiply the first weight of each vector by a matrix; other blocks stay as they are."""
        rows = []
        for vector in vectors:
            blocks = self.split(vector)
            blocks[self.weight] = blocks[self.weight] @ matrix
            rows.append(flat(blocks))
        return torch.stack(rows)


def first_dense_layer(whole: LossCurvature) -> Slots:
    """Return the slots of a dense first layer's parameters; raise if there is no such layer."""
    if whole.chunked or whole.group is not None:
        raise ValueError("input_rank needs all data in one chunk on one process")
    if whole.inputs.ndim < 2:
        raise ValueError("input_rank needs inputs (N, D)")

    chunk = whole.linearise(whole.inputs[:2], whole.labels[:2])
    call = chunk.calls[0] if chunk.calls else None
    if call is None or type(call.layer) is not nn.Linear or call.slots.get("weight") is None:
        raise ValueError("input_rank needs a model with a free nn.Linear as its first layer")

    inputs = call.arguments[0]
    raw = whole.inputs[:2].flatten(1)
    if inputs.shape != raw.shape or inputs.data_ptr() != whole.inputs.data_ptr():
        raise ValueError("input_rank needs the first layer to see the fixed inputs, (N, D)")
    if sum(call.slots["weight"] in other.slots.values() for other in chunk.calls) > 1:
        raise ValueError("input_rank needs a first layer with weights that are used once")
    return call.slots
