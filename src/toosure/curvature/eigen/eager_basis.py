"""An orthonormal basis that grows, and the eigenpairs of what a matrix looks like inside it.

The small matrices are solved on the host in float64.
"""

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.operators import Operator

DEPENDENT = 1e-5  # squared sine below which a starting vector adds only rounding noise
INDEPENDENT = 1e-2  # above which the overlaps, right to 1e-8, leave vectors orthonormal to 1e-6
BREAKDOWN = 1e-5  # length below which an orthogonalised direction is rounding noise
ROUNDING = {torch.float32: 5e-5, torch.float64: 1e-12}  # relative; 2e-5 seen on a ResNet-20
STAGED = 2**16  # bytes up to which CUDA takes a copy of its own at once, and nobody waits
PIECE = 512  # terms of an inner product summed in the vectors' own type


class Basis:
    """Orthonormal vectors, their images, and the eigenpairs of the matrix they project out."""

    def __init__(self, operator: Operator, candidates: Tensor, past: Tensor | None = None) -> None:
        self.operator, self.past, self.products = operator, past, 0.0
        self.pulled: dict[int, tuple[Tensor, float, float]] = {}  # residuals of the present pairs
        self.vectors, self.images, self.weighted = self._opened(candidates)
        self._orthonormalise()

    def _opened(self, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        vectors = candidates / torch.linalg.vector_norm(candidates, dim=1, keepdim=True)
        images = self.operator.images(vectors)
        self.products += self.operator.image_cost * len(vectors)
        return vectors, images, self.operator.weighted(images)

    def join(self, candidates: Tensor) -> None:
        """Add vectors that may be nearly those already here."""
        mine, new = (self.vectors, self.images, self.weighted), self._opened(candidates)
        self.vectors, self.images, self.weighted = map(torch.cat, zip(mine, new, strict=True))
        self._orthonormalise()

    def _orthonormalise(self) -> None:
        """Turn to orthonormal vectors in which the matrix is diagonal, without what adds nothing.

        Where little was left of a vector, what the overlaps lack in precision counts for more, and
        the turn is made once more.
        """
        for _ in range(2):
            gram = self.operator.gram(self.vectors, self.weighted, self.images)
            overlap, self._gram = torch.stack([overlaps(self.vectors), gram]).cpu().numpy()
            if not self.finite or not np.isfinite(overlap).all():
                break
            squares, axes = eigh(overlap)
            kept = squares > DEPENDENT
            axes = axes[:, kept] / np.sqrt(squares[kept])
            values, turns = eigh(axes.T @ self._gram @ axes)
            self._rotate(axes @ turns)
            self._gram = np.diag(values)
            if squares[kept].min() > INDEPENDENT:
                break
        self._changed()

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self._gram).all())

    @property
    def rounding(self) -> float:
        return ROUNDING[self.vectors.dtype]

    def __len__(self) -> int:
        return len(self.vectors)

    def _changed(self) -> None:
        self.values, self.turns = solved(self._gram)
        self.pulled.clear()

    def _rotate(self, turn: np.ndarray) -> None:
        rows = on_device(turn.T, self.vectors)
        self.vectors = rows @ self.vectors
        self.images = torch.tensordot(rows, self.images, 1)
        self.weighted = torch.tensordot(rows, self.weighted, 1)

    def ritz_vectors(self, count: int) -> Tensor:
        return on_device(self.turns[:, :count].T, self.vectors) @ self.vectors

    def residual(self, index: int) -> tuple[float, float]:
        """The norm of A x - theta x of one Ritz pair, and that of its part outside the space."""
        if index not in self.pulled:
            turn = on_device(self.turns[:, index], self.vectors)
            products, outside = self.operator.products(
                torch.tensordot(turn, self.weighted, 1)[None]
            )
            residual = products[0] - float(self.values[index]) * (turn @ self.vectors)
            norms = torch.stack([torch.linalg.vector_norm(v) for v in (residual, outside)])
            self.pulled[index] = (residual, *norms.tolist())
            self.products += self.operator.product_cost
        return self.pulled[index][1:]

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        self._rotate(self.turns[:, :keep])
        self._gram, residuals = np.diag(self.values[:keep]), dict(self.pulled)
        self._changed()
        self.pulled = residuals

    def expand(self, index: int) -> bool:
        """Add the residual of a Ritz pair; False where nothing new was left of it."""
        self.residual(index)
        return self.add(self.pulled[index][0])

    def add(self, direction: Tensor) -> bool:
        """Add a direction, orthogonalised twice; False where nothing new was left of it."""
        rest = direction / torch.linalg.vector_norm(direction)
        for _ in range(2):
            rest = rest - self.vectors.T @ (self.vectors @ rest)
        length = torch.linalg.vector_norm(rest)
        new = (rest / length)[None]
        image = self.operator.images(new)
        weighted = self.operator.weighted(image)
        images = torch.cat([self.images, image])
        row = self.operator.gram(new, weighted, images)[0]
        *told, length = torch.cat([row, length.double()[None]]).tolist()
        self.products += self.operator.image_cost
        if not length > BREAKDOWN:  # also where it is NaN
            return False
        self.vectors = torch.cat([self.vectors, new])
        self.images, self.weighted = images, torch.cat([self.weighted, weighted])
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1], self._gram[:, -1] = told, told
        self._changed()
        return True

    def leading(self, count: int, refresh: int) -> tuple[Tensor, Tensor, np.ndarray]:
        """The leading Ritz vectors, and these moved along their residuals: x + r / (theta - shift).

        What a Ritz vector still lacks lies outside the basis, where the eigenvalues are below the
        smallest Ritz value; half of that is the shift. Also the overlaps of the former, and of
        the first of the latter, with the past vectors and that first one: (count + 1, m + 1).
        """
        vectors = self.ritz_vectors(count)
        moved = self._moved(vectors, refresh)
        first = moved[:1]
        beside = first if self.past is None else torch.cat([self.past, first])
        return vectors, moved, overlaps(torch.cat([vectors, first]), beside).cpu().numpy()

    def _moved(self, vectors: Tensor, refresh: int) -> Tensor:
        if not self.finite or 0 not in self.pulled:
            return vectors
        moved = vectors.clone()
        shift = 0.5 * max(float(self.values[-1]), 0.0) if len(self) > 1 else 0.0
        for index in range(min(max(refresh, 1, len(self.pulled)), len(vectors))):
            distance = float(self.values[index]) - shift
            if distance > 0:
                self.residual(index)
                moved[index] += self.pulled[index][0] / distance
        return moved / torch.linalg.vector_norm(moved, dim=1, keepdim=True)


def on_device(array: np.ndarray, like: Tensor) -> Tensor:
    kind = np.float64 if like.dtype == torch.float64 else np.float32
    here = torch.from_numpy(array.astype(kind))
    if like.is_cuda and here.nbytes > STAGED:
        here = here.pin_memory()
    return here.to(like.device, non_blocking=True)


def solved(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, largest first, and vectors; NaN where the matrix is not finite."""
    if not np.isfinite(gram).all():
        return np.full(len(gram), np.nan), np.eye(len(gram))
    return eigh(gram)


def overlaps(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """V W^T (or V V^T) in float64: sums of short pieces are exact enough, the long one is short.

    What lies outside the other vectors decides what is dropped, so 1e-5, the rounding of a plain
    float32 product of a million terms, would not do; this gives 1e-8 at the same price, and on a
    GPU, where a product of a few long rows keeps one processor of many busy, is faster.
    """
    pair = vectors, vectors if others is None else others
    whole = vectors.shape[1] // PIECE * PIECE
    left, right = (v[:, :whole].unflatten(1, (-1, PIECE)).transpose(0, 1) for v in pair)
    sums = (left @ right.mT).sum(0, dtype=torch.float64)
    if whole == vectors.shape[1]:
        return sums
    rest = pair[0][:, None, whole:] * pair[1][None, :, whole:]
    return sums + rest.sum(-1, dtype=torch.float64)


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of a small symmetric matrix, largest first.

    By torch: numpy's own thread pool would spin beside torch's and slow the products down.
    """
    values, vectors = torch.linalg.eigh(torch.from_numpy((matrix + matrix.T) / 2))
    return values.numpy()[::-1], vectors.numpy()[:, ::-1]
