"""Extreme eigenpairs by Rayleigh-Ritz on a growing orthonormal basis.

For a Gauss-Newton matrix G = J^T H J / N the projection V^T G V = (J V)^T H (J V) / N is exact
from JVPs alone; a VJP is paid only for the residual of the Ritz vector that won. A JVP and a VJP
count half a product each. The device is asked once per expansion and once per residual, never
inside a product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.eager_basis import Basis
from toosure.curvature.eigen.graph_basis import Rounds

SAFETY = 3.0  # the residual estimate understates the error up to 2.3 times: docs/curvature.md
CLOSE = 0.05  # relative gap below which the residual alone is believed
CLUSTER = 3  # values that may lie close together
TINY = float(np.finfo(np.float64).tiny)
Leading = Callable[[], tuple[Tensor, Tensor, np.ndarray]]


@dataclass
class Solution:
    """The best Ritz pairs found, largest first, and how far they can be trusted."""

    values: np.ndarray  # (k,) float64; more than were asked for, to start warm next time
    residuals: np.ndarray  # (wanted,) |A x - theta x| / |theta|
    errors: np.ndarray  # (wanted,) estimated relative error of each value, safety included
    beyond: float  # share of the first error that is due to what lies outside the space
    rounding: float  # of the products, relative
    products: float
    converged: bool
    lead: Leading  # of its basis

    @cached_property
    def leading(self) -> tuple[Tensor, Tensor, np.ndarray]:
        """What follows, made when first asked for, before another basis is begun."""
        return self.lead()

    @property
    def vectors(self) -> Tensor:
        """(k, P), orthonormal rows."""
        return self.leading[0]

    @property
    def improved(self) -> Tensor:
        """(k, P), the vectors improved by what their residuals say."""
        return self.leading[1]

    @property
    def shares(self) -> np.ndarray:
        """(k + 1, m + 1): overlaps of these, improved[0] last, with past vectors and the last."""
        return self.leading[2]

    def error_of(self, index: int) -> float:
        """A pair's estimated error, never below the rounding of the type it was computed in."""
        return max(float(self.errors[index]), self.rounding)


def solve(
    basis: Basis | Rounds,
    wanted: int = 1,
    rtol: float = 1e-3,
    budget: float = 200.0,
    *,
    largest_basis: int = 30,
    keep: int = 4,
    reserve: Tensor | None = None,
    warm: bool = False,
    known_gap: float = 0.0,
    refresh: int = 1,
) -> Solution:
    """Find the `wanted` largest eigenpairs, starting from what a basis spans.

    Pairs are settled in order, each by expanding with its residual, and all are looked at once
    more at the end. From a cold start the error is judged by the residual alone: in a cluster of
    eigenvalues a few vectors show a mixture of them and nothing near it, a false gap. A `warm`
    basis is trusted with its gaps, the last of them narrowed by the residual of the pair after it.
    `reserve` holds vectors to join before the first expansion; `known_gap` is a relative gap to
    the second eigenvalue known from before, used while a warm basis shows none; `refresh` says
    how many vectors are improved by their residuals for a later start.
    Never raises for lack of convergence: the solution says so.
    """
    operator = basis.operator
    residuals, errors = np.full(wanted, np.nan), np.full(wanted, np.inf)
    beyond = np.zeros(wanted)
    index, looked_again = 0, wanted == 1
    while basis.finite:
        towards = index
        if index < len(basis):
            norm, outside = basis.residual(index)
            size = max(abs(basis.values[index]), TINY)
            residuals[index] = np.hypot(norm, outside) / size
            beyond[index] = 2 * (outside / size) ** 2  # r^2 / gap, the gap being half the value
            allowed = max(rtol - beyond[index], rtol / 2)
            inside = norm / size
            if warm:
                inside = estimated_error(norm, basis.values, index, known_gap)
            if warm and inside <= allowed and index == wanted - 1 and len(basis) > wanted:
                width, _ = basis.residual(wanted)
                inside = estimated_error(norm, basis.values, index, width=width)
                towards = index if inside <= allowed else wanted
            if warm and inside > allowed and wanted == 1 and isinstance(basis, Rounds):
                inside = min(inside, clustered_error(basis.lengths, basis.values))
            errors[index] = inside + beyond[index]
            if inside <= allowed:
                index += 1
                if index == wanted and looked_again:
                    break
                if index == wanted:
                    index, looked_again = 0, True
                continue
            looked_again = wanted == 1
        if reserve is not None:
            basis.join(reserve)
            reserve, index = None, 0
            continue
        if basis.products + operator.image_cost + operator.product_cost > budget:
            break
        if len(basis) >= largest_basis:
            basis.restart(min(wanted + keep, largest_basis - 1))
        if towards < len(basis):
            grown = basis.expand(towards)
        else:  # fewer vectors than pairs wanted: a random one opens the space
            grown = basis.add(random_vectors(1, basis.vectors, seed=len(basis))[0])
        if not grown:
            break
    count = min(len(basis), max(wanted, keep))
    found = Solution(
        values=basis.values[:count].copy(),
        residuals=residuals,
        errors=errors,
        beyond=float(beyond[0]),
        rounding=basis.rounding,
        products=basis.products,
        converged=bool(basis.finite and (errors <= rtol).all()),
        lead=partial(basis.leading, count, refresh),
    )
    if isinstance(basis, Basis):  # its residuals may be missing, which are products
        _, found.products = found.leading, basis.products
    return found


def estimated_error(
    residual: float,
    values: np.ndarray,
    index: int,
    known_gap: float = 0.0,
    width: float = 0.0,
) -> float:
    """min(r, r^2 / gap) relative to the value, times the safety factor; r where the gap is small.

    `width` is the residual of the pair after it, whose eigenvalue may be larger by that.
    """
    if not np.isfinite(residual):
        return float("inf")
    gaps = np.abs(values - values[index])
    if index + 1 < len(values):
        gaps[index + 1] -= width
    gap = np.delete(gaps, index).min() if len(values) > 1 else known_gap * abs(values[index])
    close = gap <= CLOSE * abs(values[index])
    bound = residual if close else min(residual, residual**2 / gap)
    return float(SAFETY * bound / max(abs(values[index]), TINY))


def clustered_error(residuals: np.ndarray, values: np.ndarray) -> float:
    """The same for the first of some values that lie close together, from all their residuals.

    The first two or three span what they are; how they divide it does not matter to the sum of
    r^2 over them, which the gap to the next one, its own residual off, divides.
    """
    first, bound = values[0], np.inf
    for count in range(2, min(CLUSTER, len(values) - 1) + 1):
        gap = first - values[count] - residuals[count]
        if gap > CLOSE * abs(first):
            bound = min(bound, (residuals[:count] ** 2).sum() / gap)
    return float(SAFETY * bound / max(abs(first), TINY))


def random_vectors(count: int, like: Tensor, seed: int = 0) -> Tensor:
    """Seeded normal vectors (count, P), the same on every process and device."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, like.shape[-1], generator=generator, dtype=torch.float32)
    return vectors.to(like.device, like.dtype)
