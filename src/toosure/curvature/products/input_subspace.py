"""Curvature inside the span of the inputs' leading singular vectors, where they are fixed.

The gradient of a dense first layer is a sum of outer products b_i x_i^T, so eigenvectors of the
Gauss-Newton matrix lie in the row space of the inputs, and mostly in its leading directions. With
W = C Q^T the first layer costs rank / in_features of what it did. The residual of a Ritz vector
outside these directions is M = sum_i b_i (x_i - Q Q^T x_i)^T; its length is estimated with every
product from M S, S a fixed random matrix (Johnson and Lindenstrauss 1984), whose price is that
of SKETCH more directions. So a value found here is judged in the whole space.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.curvature.products.functional_model import flat
from toosure.curvature.products.jacobian_products import Linearised, gradients
from toosure.curvature.products.loss_curvature import Matrix, Problem

SKETCH = 64  # |M S|^2 is below half of |M|^2 with a chance of 3e-4 at most (chi^2 of 64)


class Restricted:
    """A problem seen in coordinates (C, the other parameters); offers what the solver needs."""

    def __init__(self, problem: Problem, rank: int) -> None:
        first = first_dense_layer(problem)
        self.problem, self.count = problem, problem.count
        assert first["weight"] is not None
        self.weight, self.bias = first["weight"], first.get("bias")
        inputs = problem.inputs.flatten(1)
        self.rank = min(rank, *inputs.shape)
        self.features = inputs.shape[1]
        with torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
            torch.manual_seed(0)
            self.basis = torch.svd_lowrank(inputs, min(self.rank + 20, *inputs.shape), niter=4)[2]
        self.basis = self.basis[:, : self.rank].contiguous()  # (in, rank), orthonormal columns
        self.inputs = inputs @ self.basis  # (n, rank)
        generator = torch.Generator().manual_seed(0)
        mixed = torch.randn(self.features, SKETCH, generator=generator).to(inputs) / SKETCH**0.5
        rest = inputs @ mixed - self.inputs @ (self.basis.T @ mixed)  # (n, SKETCH)
        self.seen = torch.cat([self.inputs, rest], 1)
        self.shapes = list(problem.shapes)
        self.shapes[self.weight] = torch.Size((problem.shapes[self.weight][0], self.rank))
        self.sizes = [shape.numel() for shape in self.shapes]
        self.size = sum(self.sizes)
        self.dtype, self.device = problem.dtype, problem.device

    def split(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split(self.sizes, dim=-1)
        return [p.view(*p.shape[:-1], *shape) for p, shape in zip(parts, self.shapes, strict=True)]

    def _piece(self) -> Linearised:
        (piece,) = self.problem.chunks()
        return piece

    def images(self, vectors: Tensor) -> Tensor:
        """J V for every vector in these coordinates: (k, n, C)."""
        self._piece()
        with self.problem.reading():
            return self.problem.replay(
                f"jvp {len(vectors)} in {self.rank}", self._push_all, vectors
            )

    def _push_all(self, vectors: Tensor) -> Tensor:
        piece = self._piece()
        if piece.in_blocks(vectors):
            return piece.jvps(self.split(vectors), first=self.inputs)
        return torch.stack([self._push(v) for v in vectors])

    def _push(self, vector: Tensor) -> Tensor:
        piece, blocks = self._piece(), self.split(vector)
        bias = None if self.bias is None else blocks[self.bias]
        changes = [F.linear(self.inputs, blocks[self.weight], bias)]
        changes += [call.direction(blocks) for call in piece.calls[1:]]
        return piece.push(changes + [blocks[i] for i in piece.direct])

    def pull_apart(self, cotangents: Tensor) -> tuple[Tensor, Tensor]:
        """(1/N) J^T U in these coordinates, (k, P), and a sketch of what lies outside, (k, q)."""
        self._piece()
        with self.problem.reading():
            name = f"vjp {len(cotangents)} in {self.rank}"
            pulled = self.problem.replay(name, self._pull_all, cotangents / self.count)
        return pulled[:, : self.size], pulled[:, self.size :]

    def _pull_all(self, cotangents: Tensor) -> Tensor:
        piece = self._piece()
        if not piece.in_blocks(cotangents):
            return torch.stack([self._pull(u) for u in cotangents])
        return self._apart(piece.vjps(cotangents, first=self.seen))

    def _pull(self, cotangent: Tensor) -> Tensor:
        piece = self._piece()
        own = [i for i in (self.weight, self.bias) if i is not None]
        others = [i for i in range(len(self.shapes)) if i not in own]
        wanted = [piece.calls[0].output, *(piece.parameters[i] for i in others)]
        outer, *rest = gradients(piece.logits, wanted, cotangent)
        blocks = {i: block[None] for i, block in zip(others, rest, strict=True)}
        blocks[self.weight] = (outer.T @ self.seen)[None]
        if self.bias is not None:
            blocks[self.bias] = outer.sum(0)[None]
        return self._apart(blocks)[0]

    def _apart(self, blocks: dict[int, Tensor]) -> Tensor:
        """Blocks (k, ...) as vectors in these coordinates and, behind them, the sketch."""
        inside, outside = blocks[self.weight].tensor_split([self.rank], dim=2)
        parts = [inside if i == self.weight else blocks[i] for i in range(len(self.shapes))]
        return torch.cat([part.flatten(1) for part in [*parts, outside]], 1)

    def weighted(self, images: Tensor, matrix: Matrix) -> Tensor:
        return self.problem.weighted(images, matrix)

    def reduced(self, tensor: Tensor) -> Tensor:
        return tensor

    def lift(self, vectors: Tensor) -> Tensor:
        """Vectors of these coordinates as vectors of the whole space, (k, P)."""
        return torch.stack([flat(self._lifted(self.split(v))) for v in vectors])

    def _lifted(self, blocks: Sequence[Tensor]) -> list[Tensor]:
        whole = list(blocks)
        whole[self.weight] = blocks[self.weight] @ self.basis.T
        return whole

    def carried(self, vectors: Tensor, wider: "Restricted | Problem") -> Tensor:
        """Vectors of these coordinates in those of a wider restriction or of the whole space."""
        if isinstance(wider, Problem):
            return self.lift(vectors)
        turn = self.basis.T @ wider.basis  # (rank, wider rank)
        rows = []
        for vector in vectors:
            blocks = self.split(vector)
            blocks[self.weight] = blocks[self.weight] @ turn
            rows.append(flat(blocks))
        return torch.stack(rows)


def first_dense_layer(problem: Problem) -> dict[str, int | None]:
    """The places of a dense first layer's parameters; a ValueError says why there is none."""
    if problem.chunked or problem.group is not None:
        raise ValueError("input_rank needs all data in one chunk on one process")
    piece = problem.linearise(problem.inputs[:2], problem.labels[:2])
    call = piece.calls[0] if piece.calls else None
    if call is None or type(call.layer) is not nn.Linear or call.slots.get("weight") is None:
        raise ValueError("input_rank needs a model whose first layer is a free nn.Linear")
    inputs, raw = call.arguments[0], problem.inputs[:2].flatten(1)
    if inputs.shape != raw.shape or inputs.data_ptr() != problem.inputs.data_ptr():
        raise ValueError("input_rank needs the first layer to see the fixed inputs, (N, D)")
    if sum(call.slots["weight"] in other.slots.values() for other in piece.calls) > 1:
        raise ValueError("input_rank needs a first layer whose weights are used once")
    return call.slots
