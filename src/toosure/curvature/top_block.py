"""The leading eigenvectors of a curvature matrix, held by block iterations from call to call."""

import math

import torch
from torch import Tensor

from toosure.curvature.eigen.block_iteration import (
    COLD_ROUNDS,
    GUARD,
    RENEW_EVERY,
    BlockPairs,
    Products,
    block_start,
    iterate_block,
)
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.products.dense_hessian import DenseHessian
from toosure.curvature.products.loss_curvature import LossCurvature, Matrix
from toosure.curvature.products.precision import tensor_cores
from toosure.curvature.result import Eigenpairs


def block_products(curvature: LossCurvature, matrix: Matrix) -> Products:
    """Return products with a matrix at the present weights, block by block where that is faster.

    A chain of dense layers is multiplied by hand (`DenseHessian`). Other layers, and passes that
    are replayed as CUDA graphs, use `LossCurvature.apply`.
    """
    by_hand = None
    plain = not (curvature.chunked or curvature.forward_mode or curvature.graphs.enabled)
    if matrix == "hessian" and plain:
        (chunk,) = curvature.chunks()
        with curvature.temporary_mode():
            by_hand = DenseHessian.of(chunk, curvature.loss)
    if by_hand is None:
        return lambda block, rounded: curvature.apply(block, matrix)

    def products(block: Tensor, rounded: bool) -> Tensor:
        with tensor_cores(rounded), torch.autocast(block.device.type, enabled=False):
            total = by_hand.products(block)
        return curvature.reduce_sum(total) / curvature.count

    return products


class TopBlock:
    """Hold the k leading eigenvectors by a fixed number of rounds per call, warm from the last.

    The first call iterates to `rtol`. Every fifty calls the last of the extra vectors is replaced
    by a random one, which finds what the block has missed.
    """

    def __init__(self, curvature: LossCurvature, matrix: Matrix, k: int, rounds: int, seed: int):
        self.curvature = curvature
        self.matrix: Matrix = matrix
        self.k = k
        self.rounds = rounds
        self.seed = seed
        self.size = min(k + GUARD, curvature.size)

    def solve(self, known: Tensor | None, calls: int, rtol: float) -> tuple[Eigenpairs, Tensor]:
        """Return the pairs now, and the block from which the next call starts."""
        like = self.curvature.vector_like
        products = block_products(self.curvature, self.matrix)
        if known is None:
            pairs = self._from_random_start(products, rtol)
        else:
            block = block_start(self.size, like, self.seed + calls, known)
            if calls % RENEW_EVERY == 0 and self.size > self.k:
                fresh = random_vectors(1, like, self.seed + calls)
                block = torch.cat([block[:-1], fresh / torch.linalg.vector_norm(fresh)])
            pairs = iterate_block(products, block, self.rounds)
        return self._result(pairs, rtol), pairs.improved

    def _from_random_start(self, products: Products, rtol: float) -> BlockPairs:
        """Iterate from random vectors until the first k values are right to `rtol`."""
        block = block_start(self.size, self.curvature.vector_like, self.seed)
        pairs = iterate_block(products, block, 1)
        for _ in range(COLD_ROUNDS - 1):
            error = pairs.error(self.k)
            if error <= rtol or not math.isfinite(error):
                break
            spent = pairs.products
            pairs = iterate_block(products, pairs.improved, 1)
            pairs.products += spent
        return pairs

    def _result(self, pairs: BlockPairs, rtol: float) -> Eigenpairs:
        """Return the first k pairs with their estimated error."""
        error = pairs.error(self.k)
        converged = error <= rtol
        note = "" if converged else f"estimated error {error:.1e} after {pairs.products} products"
        return Eigenpairs(
            value=torch.from_numpy(pairs.values[: self.k].copy()),
            error=error,
            residual=pairs.relative_residual(self.k),
            products=pairs.products,
            converged=converged,
            note=note,
            vectors=pairs.vectors[: self.k],
        )
