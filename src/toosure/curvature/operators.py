"""Symmetric matrices seen through the images of vectors, as a solver needs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from toosure.curvature.products.input_subspace import Restricted
from toosure.curvature.products.loss_curvature import Matrix, Problem

REPLAYED = 2_000_000  # longest vectors whose algebra is replayed too: longer ones keep a GPU busy


class Operator(Protocol):
    """A symmetric matrix, one image of a vector at a time.

    `weighted` is what a Gram matrix and a product take of an image. `products` gives the matrix
    times the vectors and, where they live in a part of the space only, what lies outside of it,
    (k, q). If the operator `replays`, `told` calls a function of tensors, by name, as a CUDA
    graph and looks at what it gives; `kept` makes something once that such graphs read and write.
    Where it is `dense`, the products of a block of vectors cost little more than one.
    """

    image_cost: float
    product_cost: float

    @property
    def replays(self) -> bool: ...

    @property
    def dense(self) -> bool: ...

    def images(self, vectors: Tensor) -> Tensor: ...
    def weighted(self, images: Tensor) -> Tensor: ...
    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor: ...
    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]: ...
    def told(
        self, name: str, function: Callable[..., Tensor], *arguments: Tensor
    ) -> np.ndarray: ...
    def kept(self, name: str, make: Callable[[], Any]) -> Any: ...


@dataclass
class GaussNewton:
    """G (or the Fisher) as J^T H_z J / N: an image is J v, a product pulls H_z J v back."""

    problem: Problem | Restricted
    matrix: Matrix = "gn"
    image_cost: float = 0.5
    product_cost: float = 0.5

    def images(self, vectors: Tensor) -> Tensor:
        return self.problem.images(vectors)  # (k, n, C)

    def weighted(self, images: Tensor) -> Tensor:
        return self.problem.weighted(images, self.matrix)

    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor:
        left, right = weighted.double().flatten(1), images.double().flatten(1)
        return self.problem.reduced(left @ right.T) / self.problem.count

    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        return self.problem.pull_apart(weighted)

    @property
    def whole(self) -> Problem:
        return self.problem if isinstance(self.problem, Problem) else self.problem.problem

    @property
    def replays(self) -> bool:
        enabled = self.whole.replay.enabled and not self.whole.forward_mode
        return enabled and self.problem.size <= REPLAYED

    @property
    def dense(self) -> bool:
        return self.whole.dense

    def told(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        list(self.whole.chunks())  # a graph of its own, replayed when weights move

        def reading(*places: Tensor) -> Tensor:
            with self.whole.reading():
                return function(*places)

        return self.whole.replay.told(f"{name}, {self._name}", reading, *arguments)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        return self.whole.replay.kept(f"{name}, {self._name}", make)

    @property
    def _name(self) -> str:
        return f"{self.matrix} in {self.problem.size}"


@dataclass
class Whole:
    """Any of the matrices, or its negative: an image is already the product."""

    problem: Problem
    matrix: Matrix = "hessian"
    sign: float = 1.0
    image_cost: float = 1.0
    product_cost: float = 0.0

    @property
    def replays(self) -> bool:
        return False

    @property
    def dense(self) -> bool:
        return False

    def images(self, vectors: Tensor) -> Tensor:
        return self.sign * self.problem.apply(vectors, self.matrix)  # (k, P)

    def weighted(self, images: Tensor) -> Tensor:
        return images

    def gram(self, vectors: Tensor, weighted: Tensor, images: Tensor) -> Tensor:
        return (vectors @ images.T).double()

    def products(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        return weighted, weighted.new_zeros(len(weighted), 1)

    def told(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        return function(*arguments).cpu().numpy()

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        return make()
