"""Extreme eigenpairs by Rayleigh-Ritz on a growing orthonormal basis.

For a Gauss-Newton matrix G = J^T H J / N the projection V^T G V = (J V)^T H (J V) / N is exact
from JVPs alone; a VJP is paid only for the residual of the Ritz vector that won. A JVP and a VJP
count half a product each. The small matrices are solved on the host in float64, so the device is
asked once per expansion and never inside a product.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.problem import Matrix, Problem
from toosure.curvature.restrict import Restricted

SAFETY = 3.0  # the residual estimate understates the error up to 2.3 times: docs/curvature.md
DEPENDENT = 1e-5  # squared sine below which a starting vector adds only rounding noise
BREAKDOWN = 1e-5  # length below which an orthogonalised direction is rounding noise
ROUNDING = {torch.float32: 5e-5, torch.float64: 1e-12}  # relative; 2e-5 seen on a ResNet-20
PIECE = 4096  # terms of an inner product summed in the vectors' own type
TINY = float(np.finfo(np.float64).tiny)


class Operator(Protocol):
    """A symmetric matrix seen through the images of vectors.

    `product` gives the matrix times the vector of an image and, where the vectors live in a part
    of the space only, the length of what lies outside of it.
    """

    image_cost: float
    product_cost: float

    def images(self, vectors: Tensor) -> Tensor: ...
    def gram(self, vectors: Tensor, images: Tensor, others: Tensor) -> Tensor: ...
    def product(self, image: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass
class GaussNewton:
    """G (or the Fisher) as J^T H_z J / N: an image is J v, a product pulls H_z J v back."""

    problem: Problem | Restricted
    matrix: Matrix = "gn"
    image_cost: float = 0.5
    product_cost: float = 0.5

    def images(self, vectors: Tensor) -> Tensor:
        return self.problem.images(vectors)  # (k, n, C)

    def gram(self, vectors: Tensor, images: Tensor, others: Tensor) -> Tensor:
        left = self.problem.weighted(images, self.matrix).double().flatten(1)
        return self.problem.reduced(left @ others.double().flatten(1).T) / self.problem.count

    def product(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return self.problem.pull_one(self.problem.weighted(image, self.matrix))


@dataclass
class Whole:
    """Any of the matrices, or its negative: an image is already the product."""

    problem: Problem
    matrix: Matrix = "hessian"
    sign: float = 1.0
    image_cost: float = 1.0
    product_cost: float = 0.0

    def images(self, vectors: Tensor) -> Tensor:
        return self.sign * self.problem.apply(vectors, self.matrix)  # (k, P)

    def gram(self, vectors: Tensor, images: Tensor, others: Tensor) -> Tensor:
        return (vectors @ others.T).double()

    def product(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image, image.new_zeros(())


class Basis:
    """Orthonormal vectors, their images, and the eigenpairs of the matrix they project out."""

    def __init__(
        self, operator: Operator, candidates: Tensor, joined: "Basis | None" = None
    ) -> None:
        self.operator = operator
        self.vectors = candidates / torch.linalg.vector_norm(candidates, dim=1, keepdim=True)
        self.images = operator.images(self.vectors)
        self.products = operator.image_cost * len(candidates)
        if joined is not None:
            self.vectors = torch.cat([joined.vectors, self.vectors])
            self.images = torch.cat([joined.images, self.images])
            self.products += joined.products
        products = overlaps(self.vectors)
        gram = operator.gram(self.vectors, self.images, self.images)
        overlap, self._gram = torch.stack([products, gram]).cpu().numpy()
        if self.finite and np.isfinite(overlap).all():
            squares, axes = eigh(overlap)
            axes = axes[:, squares > DEPENDENT] / np.sqrt(squares[squares > DEPENDENT])
            values, turns = eigh(axes.T @ self._gram @ axes)
            self._rotate(axes @ turns)
            self._gram = np.diag(values)
        self.values, self.turns = self._solve_small()

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
        self.vectors, self.images = rows @ self.vectors, torch.tensordot(rows, self.images, 1)

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.copy()).to(self.vectors.device, self.vectors.dtype)

    def ritz_vectors(self, count: int) -> Tensor:
        return self._on_device(self.turns[:, :count].T) @ self.vectors

    def residual(self, index: int) -> tuple[Tensor, float, float]:
        """A x - theta x of one Ritz pair, its norm, and the norm of its part outside the space."""
        turn = self._on_device(self.turns[:, index])
        product, outside = self.operator.product(torch.tensordot(turn, self.images, 1))
        self.products += self.operator.product_cost
        residual = product - float(self.values[index]) * (turn @ self.vectors)
        inside, beyond = torch.stack([torch.linalg.vector_norm(residual), outside]).tolist()
        return residual, inside, beyond

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        self._rotate(self.turns[:, :keep])
        self._gram = np.diag(self.values[:keep])
        self.values, self.turns = self._solve_small()

    def expand(self, direction: Tensor) -> bool:
        """Add a direction, orthogonalised twice; False where nothing new was left of it."""
        rest = direction / torch.linalg.vector_norm(direction)
        for _ in range(2):
            rest = rest - self.vectors.T @ (self.vectors @ rest)
        length = torch.linalg.vector_norm(rest)
        new = (rest / length)[None]
        image = self.operator.images(new)
        self.products += self.operator.image_cost
        vectors, images = torch.cat([self.vectors, new]), torch.cat([self.images, image])
        gram_row = self.operator.gram(new, image, images)[0]
        *row, size = torch.cat([gram_row, length.double()[None]]).tolist()
        if not size > BREAKDOWN:  # also where it is NaN
            return False
        k = len(row)
        gram = np.zeros((k, k))
        gram[:-1, :-1], gram[-1], gram[:, -1] = self._gram, row, row
        self.vectors, self.images, self._gram = vectors, images, gram
        self.values, self.turns = self._solve_small()
        return True


@dataclass
class Solution:
    """The best Ritz pairs found, largest first, and how far they can be trusted."""

    values: np.ndarray  # (k,) float64; more than were asked for, to start warm next time
    vectors: Tensor  # (k, P), orthonormal rows
    residuals: np.ndarray  # (wanted,) |A x - theta x| / |theta|
    errors: np.ndarray  # (wanted,) estimated relative error of each value, safety included
    improved: Tensor  # (k, P), the vectors after a free step along their residuals
    beyond: float  # share of the first error that is due to what lies outside the space
    products: float
    converged: bool

    def error_of(self, index: int) -> float:
        """A pair's estimated error, never below the rounding of the type it was computed in."""
        return max(float(self.errors[index]), ROUNDING[self.vectors.dtype])


def solve(
    basis: Basis,
    wanted: int = 1,
    rtol: float = 1e-3,
    budget: float = 200.0,
    *,
    largest_basis: int = 30,
    keep: int = 4,
    reserve: Tensor | None = None,
    known_gap: float = 0.0,
    refresh: int = 1,
) -> Solution:
    """Find the `wanted` largest eigenpairs, starting from what a basis spans.

    Pairs are settled in order, each by expanding with its residual, and all are looked at once
    more at the end. `reserve` holds vectors to join before the first expansion; `known_gap` is a
    relative gap to the second eigenvalue known from before, used while the basis shows none;
    `refresh` says how many vectors are improved by their residuals for a later start.
    Never raises for lack of convergence: the solution says so.
    """
    operator = basis.operator
    residuals, errors = np.full(wanted, np.nan), np.full(wanted, np.inf)
    beyond = np.zeros(wanted)
    index, looked_again = 0, wanted == 1
    leading: Tensor | None = None  # the residual of the first pair
    while basis.finite:
        if index >= len(basis):  # fewer vectors than pairs wanted: a random one opens the space
            direction = random_vectors(1, basis.vectors, seed=len(basis))[0]
        else:
            direction, norm, outside = basis.residual(index)
            leading = direction if index == 0 else leading
            size = max(abs(basis.values[index]), TINY)
            residuals[index] = np.hypot(norm, outside) / size
            inside = estimated_error(norm, basis.values, index, known_gap)
            beyond[index] = 2 * (outside / size) ** 2  # r^2 / gap, the gap being half the value
            errors[index] = inside + beyond[index]
            if inside <= max(rtol - beyond[index], rtol / 2):
                index += 1
                if index == wanted and looked_again:
                    break
                if index == wanted:
                    index, looked_again = 0, True
                continue
            looked_again = wanted == 1
        if reserve is not None:
            basis = Basis(operator, reserve, basis)
            reserve, index = None, 0
            continue
        if basis.products + operator.image_cost + operator.product_cost > budget:
            break
        if len(basis) >= largest_basis:
            basis.restart(min(wanted + keep, largest_basis - 1))
        if not basis.expand(direction):
            break
    count = min(len(basis), max(wanted, keep))
    return Solution(
        values=basis.values[:count].copy(),
        vectors=basis.ritz_vectors(count),
        residuals=residuals,
        errors=errors,
        improved=_improved(basis, count, refresh, leading),
        beyond=float(beyond[0]),
        products=basis.products,
        converged=bool(basis.finite and (errors <= rtol).all()),
    )


def _improved(basis: Basis, count: int, refresh: int, residual: Tensor | None) -> Tensor:
    """The Ritz vectors, the first ones moved along their residuals: x + r / (theta - shift).

    What a Ritz vector still lacks lies outside the basis, where the eigenvalues are below the
    smallest Ritz value; half of that is the shift.
    """
    vectors = basis.ritz_vectors(count)
    if not basis.finite or residual is None:
        return vectors
    shift = 0.5 * max(float(basis.values[-1]), 0.0) if len(basis) > 1 else 0.0
    for index in range(min(max(refresh, 1), count)):
        if index:
            residual, _, _ = basis.residual(index)
        distance = float(basis.values[index]) - shift
        if distance > 0:
            vectors[index] += residual / distance
    return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)


def estimated_error(
    residual: float, values: np.ndarray, index: int, known_gap: float = 0.0
) -> float:
    """min(r, r^2 / gap) relative to the value, times the safety factor."""
    if not np.isfinite(residual):
        return float("inf")
    others = np.abs(np.delete(values, index) - values[index])
    gap = others.min() if len(others) else known_gap * abs(values[index])
    bound = min(residual, residual**2 / gap) if gap > 0 else residual
    return float(SAFETY * bound / max(abs(values[index]), TINY))


def overlaps(vectors: Tensor) -> Tensor:
    """V V^T in float64: sums of short pieces are exact enough, and the long sum is of few terms.

    What lies outside the other vectors decides what is dropped, so 1e-5, the rounding of a plain
    float32 product of a million terms, would not do; this gives 1e-8 at the same price.
    """
    whole = vectors.shape[1] // PIECE * PIECE
    pieces = vectors[:, :whole].unflatten(1, (-1, PIECE)).transpose(0, 1)  # (m, k, PIECE)
    rest = vectors[:, whole:].double()
    return (pieces @ pieces.mT).double().sum(0) + rest @ rest.T


def random_vectors(count: int, like: Tensor, seed: int = 0) -> Tensor:
    """Seeded normal vectors (count, P), the same on every process and device."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, like.shape[-1], generator=generator, dtype=torch.float32)
    return vectors.to(like.device, like.dtype)


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of a small symmetric matrix, largest first.

    By torch: numpy's own thread pool would spin beside torch's and slow the products down.
    """
    values, vectors = torch.linalg.eigh(torch.from_numpy((matrix + matrix.T) / 2))
    return values.numpy()[::-1], vectors.numpy()[:, ::-1]
