"""Leading eigenvectors held from step to step by a fixed number of block iterations.

A solver that stops at a tolerance waits for the host after every product. Along training the matrix
changes little between two calls. Then a few extra vectors and a fixed number of rounds are enough
to hold the leading ones. Each round multiplies the block and its residuals, and takes the best
combinations of both (Rayleigh-Ritz; LOBPCG, Knyazev 2001, without its third block). It waits for
the host once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.error_estimates import TINY, estimated_error
from toosure.curvature.eigen.small_eigen import generalised_eigh
from toosure.curvature.eigen.vectors import on_device, overlaps, random_vectors

GUARD = 2  # extra vectors: what crosses into the leading ones comes from these
COLD_ROUNDS = 60  # at most, from a random start
RENEW_EVERY = 50  # calls until the last vector is random again, to find what the block missed

TINY_LENGTH = 1e-30  # of a residual: below it nothing is left to divide

# Multiplies a block (k, P); the second argument allows rounding to TF32.
Products = Callable[[Tensor, bool], Tensor]


@dataclass
class BlockPairs:
    """Ritz pairs of a block, largest first, and the block from which the next round starts."""

    values: np.ndarray  # (m,)
    vectors: Tensor  # (m, P), orthonormal up to the rounding of their type
    improved: Tensor  # (m, P), moved along their residuals, of length 1
    residual_norms: np.ndarray  # (m,) |A x - theta x|
    products: int

    def error(self, wanted: int) -> float:
        """Estimate the largest relative error of the first values; infinite if one is NaN."""
        first = range(min(wanted, len(self.values)))
        norms = self.residual_norms
        return max(estimated_error(float(norms[i]), self.values, i) for i in first)

    def relative_residual(self, wanted: int) -> float:
        """Return the largest residual of the first pairs, relative to their values."""
        sizes = np.maximum(np.abs(self.values[:wanted]), TINY)
        return float((self.residual_norms[:wanted] / sizes).max())


def block_start(size: int, like: Tensor, seed: int, known: Tensor | None = None) -> Tensor:
    """Return a block of unit vectors (size, P): known ones first, random ones for the rest."""
    missing = size - (0 if known is None else len(known))
    if missing <= 0:
        assert known is not None
        return known[:size]
    fresh = random_vectors(missing, like, seed)
    fresh = fresh / torch.linalg.vector_norm(fresh, dim=1, keepdim=True)
    return fresh if known is None else torch.cat([known, fresh])


def iterate_block(products: Products, block: Tensor, rounds: int) -> BlockPairs:
    """Improve a block by a number of rounds, each with two products per vector."""
    pairs = one_round(products, block)
    for _ in range(rounds - 1):
        if not np.isfinite(pairs.values).all():
            break
        spent = pairs.products
        pairs = one_round(products, pairs.improved)
        pairs.products += spent
    return pairs


def one_round(products: Products, block: Tensor) -> BlockPairs:
    """Take the leading Ritz pairs in the span of a block of unit vectors and its residuals."""
    images = products(block, False)
    quotients = (block * images).sum(1, keepdim=True)
    residuals = images - quotients * block
    lengths = torch.linalg.vector_norm(residuals, dim=1, keepdim=True)
    residuals = residuals / lengths.clamp(min=TINY_LENGTH)

    # The residuals are a small part of the new vectors, so their rounding matters little.
    residual_images = products(residuals, True)
    rows = torch.cat([block, residuals])
    row_images = torch.cat([images, residual_images])
    overlap, gram = torch.stack([overlaps(rows), overlaps(rows, row_images)]).cpu().numpy()
    if not np.isfinite(overlap).all() or not np.isfinite(gram).all():
        return not_finite(block)

    # For the mixed entries take the products of the block, which are not rounded.
    size = len(block)
    gram[:size, size:] = gram[size:, :size].T
    values, coefficients = generalised_eigh((gram + gram.T) / 2, overlap)
    return ritz_pairs(values, coefficients, rows, row_images, size)


def ritz_pairs(
    values: np.ndarray, coefficients: np.ndarray, rows: Tensor, images: Tensor, size: int
) -> BlockPairs:
    """Combine rows and their images to the first Ritz pairs, and move these along their residuals.

    The step along a residual is a Jacobi iteration. Its diagonal is half of the first value left
    out, about the end of the remaining spectrum.
    """
    size = min(size, len(values))
    rotation = on_device(np.ascontiguousarray(coefficients[:, :size].T), rows)
    vectors = rotation @ rows
    residuals = rotation @ images - on_device(values[:size, None].copy(), rows) * vectors

    shift = 0.5 * max(float(values[size]), 0.0) if len(values) > size else 0.0
    distance = values[:size] - shift
    step = np.where(distance > 0, 1 / np.where(distance > 0, distance, 1.0), 0.0)
    improved = vectors + on_device(step[:, None], rows) * residuals
    improved = improved / torch.linalg.vector_norm(improved, dim=1, keepdim=True)

    norms = torch.linalg.vector_norm(residuals, dim=1).cpu().double().numpy()
    return BlockPairs(values[:size].copy(), vectors, improved, norms, len(rows))


def not_finite(block: Tensor) -> BlockPairs:
    """Return a block with values of NaN: the products overflowed."""
    nothing = np.full(len(block), np.nan)
    return BlockPairs(nothing, block, block, nothing, 2 * len(block))
