"""An orthonormal basis that grows by one vector at a time, without CUDA graphs."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.basis import BREAKDOWN, MIN_INDEPENDENT, ROUNDING, LeadingVectors
from toosure.curvature.eigen.operator import Operator
from toosure.curvature.eigen.small_eigen import MIN_SINE_SQUARED, eigh
from toosure.curvature.eigen.vectors import on_device, overlaps


class Residual(NamedTuple):
    """A x - theta x of a Ritz pair."""

    vector: Tensor
    norm: float
    norm_outside: float  # of what A x has outside the space


class EagerBasis:
    """Orthonormal vectors, their images, and the Ritz pairs of the operator in their span.

    The small matrices are solved on the host in float64. In the end, the overlaps of `past` vectors
    with the leading ones are returned, too.
    """

    residual_norms = None  # each would cost a product: see `residual`

    def __init__(self, operator: Operator, candidates: Tensor, past: Tensor | None = None) -> None:
        self.operator = operator
        self.past = past
        self.products = 0.0
        self._residuals: dict[int, Residual] = {}  # of the present pairs
        self.vectors, self.images, self.weighted = self._with_images(candidates)
        self._orthonormalise()

    def _with_images(self, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        vectors = candidates / torch.linalg.vector_norm(candidates, dim=1, keepdim=True)
        images = self.operator.images(vectors)
        self.products += self.operator.image_cost * len(vectors)
        return vectors, images, self.operator.weighted(images)

    def join(self, candidates: Tensor) -> bool:
        """Add vectors that may nearly lie in the space; return False if all of them do."""
        before = len(self)
        vectors, images, weighted = self._with_images(candidates)
        self.vectors = torch.cat([self.vectors, vectors])
        self.images = torch.cat([self.images, images])
        self.weighted = torch.cat([self.weighted, weighted])
        self._orthonormalise()
        return len(self) > before

    def _orthonormalise(self) -> None:
        """Rotate to orthonormal vectors in which the matrix is diagonal, and drop dependent ones.

        If little is left of a vector, the limited precision of the overlaps matters more, and the
        rotation is repeated.
        """
        for _ in range(2):
            gram = self.operator.gram(self.vectors, self.weighted, self.images)
            overlap, self._gram = torch.stack([overlaps(self.vectors), gram]).cpu().numpy()
            if not self.is_finite or not np.isfinite(overlap).all():
                break

            squares, axes = eigh(overlap)
            independent = squares > MIN_INDEPENDENT
            axes = axes[:, independent] / np.sqrt(squares[independent])
            values, rotation = eigh(axes.T @ self._gram @ axes)
            self._rotate(axes @ rotation)
            self._gram = np.diag(values)
            if squares[independent].min() > MIN_SINE_SQUARED:
                break
        self._update_ritz_pairs()

    def _update_ritz_pairs(self) -> None:
        self.values, self.coefficients = eigh(self._gram)
        self._residuals.clear()

    def _rotate(self, rotation: np.ndarray) -> None:
        rows = on_device(rotation.T, self.vectors)
        self.vectors = rows @ self.vectors
        self.images = torch.tensordot(rows, self.images, 1)
        self.weighted = torch.tensordot(rows, self.weighted, 1)

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self._gram).all())

    @property
    def rounding(self) -> float:
        return ROUNDING[self.vectors.dtype]

    def __len__(self) -> int:
        return len(self.vectors)

    def ritz_vectors(self, count: int) -> Tensor:
        """Return the leading Ritz vectors, (count, P)."""
        return on_device(self.coefficients[:, :count].T, self.vectors) @ self.vectors

    def residual(self, index: int) -> tuple[float, float]:
        """Return |A x - theta x| of one Ritz pair, and the norm of A x outside the space.

        The first call for a pair costs a product.
        """
        residual = self._residual(index)
        return residual.norm, residual.norm_outside

    def _residual(self, index: int) -> Residual:
        """Return the residual of one Ritz pair, computed at its first call."""
        if index not in self._residuals:
            coefficients = on_device(self.coefficients[:, index], self.vectors)
            weighted = torch.tensordot(coefficients, self.weighted, 1)[None]
            products, outside = self.operator.products(weighted)
            residual = products[0] - float(self.values[index]) * (coefficients @ self.vectors)

            norms = torch.stack([torch.linalg.vector_norm(v) for v in (residual, outside)])
            self._residuals[index] = Residual(residual, *norms.tolist())
            self.products += self.operator.product_cost
        return self._residuals[index]

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors; the residuals of these pairs stay known."""
        self._rotate(self.coefficients[:, :keep])
        self._gram = np.diag(self.values[:keep])
        residuals = dict(self._residuals)
        self._update_ritz_pairs()
        self._residuals = residuals

    def expand(self, index: int) -> bool:
        """Add the residual of a Ritz pair; return False if it adds nothing new."""
        return self.add(self._residual(index).vector)

    def add(self, direction: Tensor) -> bool:
        """Add a direction, orthogonalised twice; return False if it adds nothing new."""
        rest = direction / torch.linalg.vector_norm(direction)
        for _ in range(2):
            rest = rest - self.vectors.T @ (self.vectors @ rest)
        length = torch.linalg.vector_norm(rest)

        new = (rest / length)[None]
        image = self.operator.images(new)
        weighted = self.operator.weighted(image)
        images = torch.cat([self.images, image])
        row = self.operator.gram(new, weighted, images)[0]

        # The length is copied together with the new row: one wait for the device.
        *gram_row, host_length = torch.cat([row, length.double()[None]]).tolist()
        self.products += self.operator.image_cost
        if not host_length > BREAKDOWN:  # also where it is NaN
            return False

        self.vectors = torch.cat([self.vectors, new])
        self.images = images
        self.weighted = torch.cat([self.weighted, weighted])
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1] = gram_row
        self._gram[:, -1] = gram_row
        self._update_ritz_pairs()
        return True

    def leading(self, count: int, refresh: int) -> LeadingVectors:
        """Return the leading Ritz vectors, at least `refresh` of them also improved."""
        vectors = self.ritz_vectors(count)
        improved = self._improved(vectors, refresh)
        first = improved[:1]
        beside = first if self.past is None else torch.cat([self.past, first])
        past_overlaps = overlaps(torch.cat([vectors, first]), beside).cpu().numpy()
        return LeadingVectors(vectors, improved, past_overlaps)

    def _improved(self, vectors: Tensor, refresh: int) -> Tensor:
        """Move Ritz vectors along known residuals, and at least `refresh` of the vectors."""
        if not self.is_finite or 0 not in self._residuals:
            return vectors

        improved = vectors.clone()
        shift = 0.5 * max(float(self.values[-1]), 0.0) if len(self) > 1 else 0.0
        for index in range(min(max(refresh, 1, len(self._residuals)), len(vectors))):
            distance = float(self.values[index]) - shift
            if distance > 0:
                improved[index] += self._residual(index).vector / distance
        unit: Tensor = improved / torch.linalg.vector_norm(improved, dim=1, keepdim=True)
        return unit
