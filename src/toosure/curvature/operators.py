"""The curvature matrices as operators for the eigen-solver."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from torch import Tensor

from toosure.curvature.eigen.operator import Operator
from toosure.curvature.products.input_subspace import InputSubspace
from toosure.curvature.products.loss_curvature import LossCurvature, Matrix
from toosure.curvature.products.precision import tensor_cores

MAX_GRAPH_SIZE = 2_000_000  # longer vectors are not captured: each operation fills a GPU
T = TypeVar("T")


@dataclass
class GaussNewton:
    """G (or the Fisher) as J^T H_z J / N: an image is J v, a product pulls H_z J v back.

    `space` is the whole parameter space or a subspace of it.
    """

    space: LossCurvature | InputSubspace
    matrix: Matrix = "gn"
    image_cost: float = 0.5
    product_cost: float = 0.5

    @property
    def uses_graphs(self) -> bool:
        return self.space.replays_jacobian and self.space.size <= MAX_GRAPH_SIZE

    @property
    def dense(self) -> bool:
        return self.space.dense

    def images(self, vectors: Tensor) -> Tensor:
        return self.space.images(vectors)  # (k, n, C)

    def weighted(self, images: Tensor) -> Tensor:
        return self.space.weighted(images, self.matrix)

    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor:
        left = weighted.double().flatten(1)
        right = images.double().flatten(1)
        return self.space.reduce_sum(left @ right.T) / self.space.count

    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        return self.space.pull_inside_and_outside(weighted)

    def tensor_cores(self, allowed: bool) -> AbstractContextManager[None]:
        return tensor_cores(allowed)

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        return self.space.to_host(f"{name}, {self._name}", function, *arguments)

    def cached(self, name: str, make: Callable[[], T]) -> T:
        return self.space.cached(f"{name}, {self._name}", make)

    @property
    def _name(self) -> str:
        return f"{self.matrix} in {self.space.size}"


@dataclass
class DirectOperator:
    """Any of the matrices, or its negative: an image is already the product."""

    uses_graphs = False
    dense = False

    curvature: LossCurvature
    matrix: Matrix = "hessian"
    sign: float = 1.0
    image_cost: float = 1.0
    product_cost: float = 0.0

    def images(self, vectors: Tensor) -> Tensor:
        return self.sign * self.curvature.apply(vectors, self.matrix)  # (k, P)

    def weighted(self, images: Tensor) -> Tensor:
        return images

    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor:
        return (vectors @ images.T).double()

    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        return weighted, weighted.new_zeros(len(weighted), 1)

    def tensor_cores(self, allowed: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        return function(*arguments).cpu().numpy()

    def cached(self, name: str, make: Callable[[], T]) -> T:
        return make()


def operator_for(curvature: LossCurvature, matrix: Matrix, sign: float = 1.0) -> Operator:
    """Return the cheapest operator for a matrix: factored if only its top is wanted."""
    if matrix == "hessian" or sign < 0:
        return DirectOperator(curvature, matrix, sign)
    return GaussNewton(curvature, matrix)
