"""Extreme eigenpairs by Rayleigh-Ritz on a growing basis.

For a Gauss-Newton matrix G = J^T H J / N the projection V^T G V = (J V)^T H (J V) / N needs only
JVPs. A VJP is computed only for the residual of the chosen Ritz vector. A JVP and a VJP count half
a product each. The host waits for the device once per expansion and once per residual, never inside
a product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from toosure.curvature.eigen.basis import Basis, LeadingVectors
from toosure.curvature.eigen.error_estimates import TINY, clustered_error, estimated_error
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.result import Result


@dataclass
class Solution:
    """The best Ritz pairs found, largest first, with their estimated errors."""

    values: np.ndarray  # (k,) float64; more than wanted, for a warm start next time
    residuals: np.ndarray  # (wanted,) |A x - theta x| / |theta|
    errors: np.ndarray  # (wanted,) estimated relative error of each value, safety included
    error_outside: float  # share of the first error due to inputs outside the searched subspace
    rounding: float  # of the products, relative
    products: float
    converged: bool
    make_leading: Callable[[], LeadingVectors]  # of its basis

    @cached_property
    def leading(self) -> LeadingVectors:
        """The leading vectors, computed on first use: do this before another basis is made."""
        return self.make_leading()

    @property
    def vectors(self) -> Tensor:
        """(k, P), orthonormal rows."""
        return self.leading.vectors

    @property
    def improved(self) -> Tensor:
        """(k, P), the vectors improved by their residuals."""
        return self.leading.improved

    @property
    def past_overlaps(self) -> np.ndarray:
        """(k + 1, m + 1): of the vectors, then improved[0], with past vectors and improved[0]."""
        return self.leading.past_overlaps

    def error_of(self, index: int) -> float:
        """Return the estimated error of a pair, never below the rounding of its type."""
        return max(float(self.errors[index]), self.rounding)

    def note(self, error: float) -> str:
        """Return why the pairs, with this largest error, did not converge; "" if they did."""
        if not np.isfinite(self.values[0]):
            return "not finite: the model's outputs or derivatives overflow"
        if self.converged:
            return ""
        return f"not converged after {self.products:g} products: estimated error {error:.1e}"

    def to_result(self, sign: float = 1.0) -> Result:
        """Return the first pair as a result; `sign` -1 turns it back to a smallest eigenvalue."""
        value = sign * float(self.values[0])
        error = self.error_of(0)
        residual = float(self.residuals[0])
        return Result(value, error, residual, self.products, self.converged, self.note(error))


@dataclass(frozen=True)
class Judgement:
    """The error of one Ritz pair, and the pair with the residual that would improve it."""

    residual: float  # relative to the value
    error: float  # estimated, relative
    error_outside: float  # share of it due to inputs outside the searched subspace
    accepted: bool
    blamed: int  # if not accepted, the pair to expand by


UNJUDGED = Judgement(float("nan"), float("inf"), 0.0, accepted=False, blamed=0)


def solve(
    basis: Basis,
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
    """Find the `wanted` largest eigenpairs, starting from the span of a basis.

    Pairs are found in order, each by expanding with its residual, and all are judged once more at
    the end. The gaps of a `warm` basis are trusted (see `judge_pair`). `reserve` holds vectors that
    join before the first expansion. `known_gap` is an earlier relative gap to the second
    eigenvalue, used while a warm basis shows none. `refresh` is the number of vectors that are
    improved by their residuals for a later start. If the `budget` of products is not enough, the
    solution is marked as not converged; nothing is raised.
    """
    judgements = [UNJUDGED] * wanted
    expansion_cost = basis.operator.image_cost + basis.operator.product_cost
    index = 0
    judging_again = wanted == 1  # one pair needs no second round

    while basis.is_finite:
        blamed = index
        if index < len(basis):
            judgement = judge_pair(basis, index, wanted, rtol, warm, known_gap)
            judgements[index] = judgement

            if judgement.accepted:
                index += 1
                if index == wanted and judging_again:
                    break
                if index == wanted:  # a later pair may have rotated an earlier one
                    index = 0
                    judging_again = True
                continue

            # The basis will change, and with it every pair: judge all of them once more.
            judging_again = wanted == 1
            blamed = judgement.blamed

        if reserve is not None:
            basis.join(reserve)
            reserve = None
            index = 0
            continue

        if basis.products + expansion_cost > budget:
            break  # not converged, and the solution says so
        if len(basis) >= largest_basis:
            basis.restart(min(wanted + keep, largest_basis - 1))
        if not grow(basis, blamed):
            break

    return _solution(basis, judgements, rtol, keep, refresh)


def judge_pair(
    basis: Basis, index: int, wanted: int, rtol: float, warm: bool, known_gap: float
) -> Judgement:
    """Judge one Ritz pair by its residual.

    From a cold start only the residual counts: in a cluster of eigenvalues a few vectors show a
    mixture of them with a false gap beside it. The gaps of a `warm` basis are trusted.
    """
    norm, outside = basis.residual(index)
    size = max(abs(basis.values[index]), TINY)

    # The part outside counts as r^2 / gap, with half of the value as gap.
    error_outside = 2 * (outside / size) ** 2
    allowed = max(rtol - error_outside, rtol / 2)

    error = norm / size
    blamed = index
    if warm:
        error = estimated_error(norm, basis.values, index, known_gap)

        # The gap after the last pair is narrowed by the residual of the next pair. If this makes
        # the error too large, the next pair is the one to improve.
        if error <= allowed and index == wanted - 1 and len(basis) > wanted:
            width, _ = basis.residual(wanted)
            error = estimated_error(norm, basis.values, index, width=width)
            blamed = index if error <= allowed else wanted

        # Close values may be judged together, if all their residuals are known.
        norms = basis.residual_norms if error > allowed and wanted == 1 else None
        if norms is not None:
            error = min(error, clustered_error(norms, basis.values))

    return Judgement(
        residual=np.hypot(norm, outside) / size,
        error=error + error_outside,
        error_outside=error_outside,
        accepted=bool(error <= allowed),
        blamed=blamed,
    )


def grow(basis: Basis, blamed: int) -> bool:
    """Expand by the residual of a pair; return False if the residual adds nothing new."""
    if blamed < len(basis):
        return basis.expand(blamed)
    # There are fewer vectors than wanted pairs: add a random one.
    return basis.add(random_vectors(1, basis.vectors, seed=len(basis))[0])


def _solution(
    basis: Basis, judgements: list[Judgement], rtol: float, keep: int, refresh: int
) -> Solution:
    """Gather the leading pairs of a basis and their judgements, `keep` vectors at least."""
    errors = np.array([j.error for j in judgements])
    count = min(len(basis), max(len(judgements), keep))
    solution = Solution(
        values=basis.values[:count].copy(),
        residuals=np.array([j.residual for j in judgements]),
        errors=errors,
        error_outside=float(judgements[0].error_outside),
        rounding=basis.rounding,
        products=basis.products,
        converged=bool(basis.is_finite and (errors <= rtol).all()),
        make_leading=partial(basis.leading, count, refresh),
    )

    # The leading vectors may lack residuals, which cost products: compute and count them now.
    if basis.residual_norms is None:
        _ = solution.leading
        solution.products = basis.products
    return solution
