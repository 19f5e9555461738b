"""A growing basis, and the Ritz pairs of a matrix projected on it."""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.operator import Operator

ROUNDING = {torch.float32: 5e-5, torch.float64: 1e-12}  # relative; 2e-5 seen on a ResNet-20
MIN_INDEPENDENT = 1e-5  # squared sine below which a starting vector adds only rounding noise
BREAKDOWN = 1e-5  # length below which an orthogonalised direction is rounding noise


class LeadingVectors(NamedTuple):
    """The leading Ritz vectors of a basis, from which a later solve starts."""

    vectors: Tensor  # (k, P), the leading Ritz vectors, orthonormal
    improved: Tensor  # (k, P), these moved along their residuals, of length 1
    past_overlaps: np.ndarray  # (k + 1, m + 1): of vectors and improved[0] with past ones and it


class Basis(Protocol):
    """Vectors that span a space, and the Ritz pairs of an operator in it, largest value first.

    `EagerBasis` grows by one vector at a time; `GraphBasis` lives in preallocated GPU memory and
    grows by CUDA graphs. The solver works on either.
    """

    @property
    def operator(self) -> Operator: ...

    @property
    def products(self) -> float:
        """Products spent so far."""
        ...

    @property
    def values(self) -> np.ndarray:
        """The Ritz values, largest first."""
        ...

    @property
    def vectors(self) -> Tensor:
        """The vectors that span the space."""
        ...

    @property
    def is_finite(self) -> bool:
        """Whether all that was computed so far is finite."""
        ...

    @property
    def rounding(self) -> float:
        """The relative rounding of a Ritz value."""
        ...

    @property
    def residual_norms(self) -> np.ndarray | None:
        """The residual norms of all Ritz pairs; None if each would cost a product."""
        ...

    def __len__(self) -> int: ...

    def residual(self, index: int) -> tuple[float, float]:
        """Return |A x - theta x| of one Ritz pair, and the norm of A x outside the space."""
        ...

    def expand(self, index: int) -> bool:
        """Add the residual of a Ritz pair; return False if nothing in it was new."""
        ...

    def add(self, direction: Tensor) -> bool:
        """Add a direction (P,); return False if nothing in it was new."""
        ...

    def join(self, candidates: Tensor) -> bool:
        """Add vectors that may nearly lie in the space; return False if all of them do."""
        ...

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        ...

    def leading(self, count: int, refresh: int) -> LeadingVectors:
        """Return the leading Ritz vectors, at least `refresh` of them also improved.

        Improved means moved along the residual: x + r / (theta - shift). The missing part of a
        Ritz vector lies outside the space, where eigenvalues are below the smallest Ritz value. The
        shift is half of that value.
        """
        ...
