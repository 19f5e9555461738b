"""What the eigen-solver needs of a symmetric matrix that is never formed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np
from torch import Tensor

T = TypeVar("T")


class Operator(Protocol):
    """A symmetric matrix A in two steps: the image of a vector, and what makes A v of it.

    For a Gauss-Newton matrix (1/N) J^T H_z J an image is J v, and A v pulls the weighted image
    H_z J v back. So V^T A V is known from images alone. Otherwise an image may be A v itself.
    """

    @property
    def image_cost(self) -> float:
        """What one image costs, as a share of a product."""
        ...

    @property
    def product_cost(self) -> float:
        """What it costs to make A v of a weighted image, as a share of a product."""
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
        """Return what `gram` and `products` need of images: H_z J v of J v."""
        ...

    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor:
        """Return V^T A W in float64, of vectors V with weighted images and W's images."""
        ...

    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        """Return A v of weighted images, (k, P), and what lies outside the space, (k, q).

        The second is not zero where the vectors live in a subspace of what A acts on.
        """
        ...

    def tensor_cores(self, allowed: bool) -> AbstractContextManager[None]:
        """Allow or forbid that products inside the context round to TF32."""
        ...

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        """Call a function of tensors, by name as a CUDA graph if possible; return its numbers."""
        ...

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Make an object once that such graphs read and write."""
        ...
