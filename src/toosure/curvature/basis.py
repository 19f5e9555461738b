"""An orthonormal basis that grows, and the eigenpairs of what a matrix looks like inside it.

What the device does between two looks of the host is one function of tensors, so that a GPU can
replay it as one graph; there a look costs more than a product, so each graph makes two of a kind.
The small matrices are solved on the host in float64.
"""

from itertools import islice

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.operators import Operator

DEPENDENT = 1e-5  # squared sine below which a starting vector adds only rounding noise
INDEPENDENT = 1e-2  # above which the overlaps, right to 1e-8, leave vectors orthonormal to 1e-6
BREAKDOWN = 1e-5  # length below which an orthogonalised direction is rounding noise
PIECE = 4096  # terms of an inner product summed in the vectors' own type
TOGETHER = 2  # residuals, and new directions, that a replayed graph makes at a time


class Basis:
    """Orthonormal vectors, their images, and the eigenpairs of the matrix they project out."""

    def __init__(
        self, operator: Operator, candidates: Tensor, joined: "Basis | None" = None
    ) -> None:
        self.operator = operator
        opened = operator.replay(f"open {len(candidates)}", self._open, candidates)
        self.vectors, self.images, self.weighted, grams = opened
        self.products = operator.image_cost * len(candidates)
        if joined is not None:
            self.vectors = torch.cat([joined.vectors, self.vectors])
            self.images = torch.cat([joined.images, self.images])
            self.weighted = torch.cat([joined.weighted, self.weighted])
            self.products += joined.products
            grams = self._grams(self.vectors, self.images, self.weighted)
        self._orthonormalise(grams)
        self.values, self.turns = self._solve_small()
        self.pulled: dict[int, tuple[Tensor, float, float]] = {}  # residuals of the present pairs

    def _orthonormalise(self, grams: Tensor) -> None:
        """Turn to orthonormal vectors in which the matrix is diagonal, without what adds nothing.

        Where little was left of a vector, what the overlaps lack in precision counts for more, and
        the turn is made once more.
        """
        for _ in range(2):
            overlap, self._gram = grams.cpu().numpy()
            if not self.finite or not np.isfinite(overlap).all():
                return
            squares, axes = eigh(overlap)
            kept = squares > DEPENDENT
            axes = axes[:, kept] / np.sqrt(squares[kept])
            values, turns = eigh(axes.T @ self._gram @ axes)
            self._rotate(axes @ turns)
            self._gram = np.diag(values)
            if squares[kept].min() > INDEPENDENT:
                return
            grams = self._grams(self.vectors, self.images, self.weighted)

    def _open(self, candidates: Tensor) -> tuple[Tensor, ...]:
        vectors = candidates / torch.linalg.vector_norm(candidates, dim=1, keepdim=True)
        images = self.operator.images(vectors)
        weighted = self.operator.weighted(images)
        return vectors, images, weighted, self._grams(vectors, images, weighted)

    def _grams(self, vectors: Tensor, images: Tensor, weighted: Tensor) -> Tensor:
        return torch.stack([overlaps(vectors), self.operator.gram(vectors, weighted, images)])

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self._gram).all())

    def __len__(self) -> int:
        return len(self.vectors)

    def _solve_small(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.finite:
            return np.full(len(self._gram), np.nan), np.eye(len(self._gram))
        return eigh(self._gram)

    def _rotate(self, turn: np.ndarray) -> None:
        rows = self._on_device(turn.T)
        self.vectors = rows @ self.vectors
        self.images = torch.tensordot(rows, self.images, 1)
        self.weighted = torch.tensordot(rows, self.weighted, 1)

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.copy()).to(self.vectors.device, self.vectors.dtype)

    def ritz_vectors(self, count: int) -> Tensor:
        return self._on_device(self.turns[:, :count].T) @ self.vectors

    def residual(self, index: int) -> tuple[Tensor, float, float]:
        """A x - theta x of one Ritz pair, its norm, and the norm of its part outside the space."""
        if index not in self.pulled:
            count = min(TOGETHER, len(self) - index) if self.operator.replays else 1
            self._pull(index, index + count)
        return self.pulled[index]

    def _pull(self, start: int, stop: int) -> None:
        pairs = np.vstack([self.turns[:, start:stop], self.values[start:stop]]).T
        parts = (self.vectors, self.weighted, self._on_device(pairs))
        name = f"residuals {stop - start} of {len(self)}"
        residuals, norms = self.operator.replay(name, self._residuals, *parts)
        self.products += len(pairs) * self.operator.product_cost
        for index, residual, (inside, outside) in zip(
            range(start, stop), residuals, norms.tolist(), strict=True
        ):
            self.pulled[index] = residual, inside, outside

    def _residuals(self, vectors: Tensor, weighted: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        residuals, norms = [], []
        for pair in pairs:
            turn, value = pair[:-1], pair[-1]
            product, outside = self.operator.product(torch.tensordot(turn, weighted, 1))
            residuals.append(product - value * (turn @ vectors))
            norms.append(torch.stack([torch.linalg.vector_norm(residuals[-1]), outside]))
        return torch.stack(residuals), torch.stack(norms)

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        self._rotate(self.turns[:, :keep])
        self._gram = np.diag(self.values[:keep])
        self._changed()

    def _changed(self) -> None:
        self.values, self.turns = self._solve_small()
        self.pulled.clear()

    def expand(self, direction: Tensor) -> bool:
        """Add a direction, orthogonalised twice; False where nothing new was left of it.

        A replayed graph goes on from the new vector by the matrix, as Lanczos would.
        """
        name, parts = f"expand {len(self)}", (self.vectors, self.images, direction)
        new, images, weighted, told = self.operator.replay(name, self._expansion, *parts)
        self.products += self.operator.image_cost * len(new)
        self.products += self.operator.product_cost * (len(new) - 1)
        rows, found = iter(told.tolist()), 0
        for _ in range(len(new)):
            *row, length = islice(rows, len(self._gram) + 2)
            if not length > BREAKDOWN:  # also where it is NaN
                break
            self._gram = np.pad(self._gram, (0, 1))
            self._gram[-1], self._gram[:, -1] = row, row
            found += 1
        if not found:
            return False
        self.vectors = torch.cat([self.vectors, new[:found]])
        self.images = torch.cat([self.images, images[:found]])
        self.weighted = torch.cat([self.weighted, weighted[:found]])
        self._changed()
        return True

    def _expansion(self, vectors: Tensor, images: Tensor, direction: Tensor) -> tuple[Tensor, ...]:
        new: list[Tensor] = []
        weights: list[Tensor] = []
        told, known = [], len(images)
        for number in range(TOGETHER if self.operator.replays else 1):
            if number:
                direction, _ = self.operator.product(weights[-1][0])
            rest = direction / torch.linalg.vector_norm(direction)
            for _ in range(2):
                rest = rest - vectors.T @ (vectors @ rest)
            length = torch.linalg.vector_norm(rest)
            new.append((rest / length)[None])
            image = self.operator.images(new[-1])
            weights.append(self.operator.weighted(image))
            vectors, images = torch.cat([vectors, new[-1]]), torch.cat([images, image])
            row = self.operator.gram(new[-1], weights[-1], images)[0]
            told += [row, length.double()[None]]
        return torch.cat(new), images[known:], torch.cat(weights), torch.cat(told)


def overlaps(vectors: Tensor) -> Tensor:
    """V V^T in float64: sums of short pieces are exact enough, and the long sum is of few terms.

    What lies outside the other vectors decides what is dropped, so 1e-5, the rounding of a plain
    float32 product of a million terms, would not do; this gives 1e-8 at the same price.
    """
    whole = vectors.shape[1] // PIECE * PIECE
    pieces = vectors[:, :whole].unflatten(1, (-1, PIECE)).transpose(0, 1)  # (m, k, PIECE)
    rest = vectors[:, whole:].double()
    return (pieces @ pieces.mT).double().sum(0) + rest @ rest.T


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of a small symmetric matrix, largest first.

    By torch: numpy's own thread pool would spin beside torch's and slow the products down.
    """
    values, vectors = torch.linalg.eigh(torch.from_numpy((matrix + matrix.T) / 2))
    return values.numpy()[::-1], vectors.numpy()[:, ::-1]
