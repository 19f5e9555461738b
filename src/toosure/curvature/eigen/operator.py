"""What the eigen-solver needs from a symmetric matrix that is never formed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np
from torch import Tensor

T = TypeVar("T")


class Operator(Protocol):
    """Symmetric matrix A = B^T W B: `images` computes B v, `products` computes B^T W (B v).

    For the Gauss-Newton matrix (1/N) J^T H_z J an image is J v, and a product pulls the weighted
    image H_z J v back. So V^T A V is known from images alone. For other matrices the image is A v.
    """

    @property
    def image_cost(self) -> float:
        """Cost of one image, as a share of a product."""
        ...

    @property
    def product_cost(self) -> float:
        """Cost of A v from a weighted image, as a share of a product."""
        ...

    @property
    def uses_graphs(self) -> bool:
        """Whether products run as CUDA graphs, where waiting for a number costs more than one."""
        ...

    @property
    def dense(self) -> bool:
        """Whether the products of a block of vectors cost little more than one product."""
        ...

    def images(self, vectors: Tensor) -> Tensor:
        """Return the image of every vector (k, P): shape (k, ...)."""
        ...

    def weighted(self, images: Tensor) -> Tensor:
        """Return W B v from B v, which `gram` and `products` need: H_z J v from J v."""
        ...

    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor:
        """Return V^T A U in float64, from the weighted images of V and the images of U."""
        ...

    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        """Return A v from weighted images, (k, P), and its part outside the space, (k, q).

        The second is zero unless the vectors are restricted to a subspace.
        """
        ...

    def tensor_cores(self, allowed: bool) -> AbstractContextManager[None]:
        """Allow or forbid TF32 in products inside the context."""
        ...

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        """Call a function of tensors, by name as a CUDA graph if possible; return its numbers."""
        ...

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Make an object once, which the graphs read and write."""
        ...
