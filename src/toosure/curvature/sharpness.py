"""How sharp: the extreme eigenvalues of the Gauss-Newton matrix and of the Hessian."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.solver import Solution, solve
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.operators import DirectOperator, operator_for
from toosure.curvature.products.loss_curvature import MATRICES, LossCurvature, Matrix
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.result import Eigenpairs, Result, check_rtol
from toosure.metrics.inputs import check_count

Data = tuple[Tensor, Tensor]


def gn_sharpness(
    model: nn.Module, data: Data, loss: LossLike = "ce", rtol: float = 1e-3, **options: Any
) -> Result:
    """Measure lambda_max of the Gauss-Newton matrix (1/n) sum_i J_i^T H_z J_i.

    The curvature of "Too Sharp, Too Sure" (arXiv 2604.20614). Options: `parameters` (names or
    patterns), `chunk`, `mode`, `group` (see `LossCurvature`), `budget` (products), `seed`.

    >>> model, x, y = nn.Linear(2, 3), torch.randn(8, 2), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    >>> gn_sharpness(model, (x, y)).converged
    True
    """
    return _extreme(model, data, loss, "gn", 1.0, rtol, options)


def hessian_sharpness(
    model: nn.Module, data: Data, loss: LossLike = "ce", rtol: float = 1e-3, **options: Any
) -> Result:
    """Measure lambda_max of the Hessian of the mean loss (Cohen et al. 2021, arXiv 2103.00065)."""
    return _extreme(model, data, loss, "hessian", 1.0, rtol, options)


def kappa_min(
    model: nn.Module,
    data: Data,
    loss: LossLike = "ce",
    rtol: float = 1e-3,
    *,
    perturbation: Tensor | None = None,
    points: int = 5,
    **options: Any,
) -> Result:
    """Measure lambda_min of the Hessian, here or along the path theta to theta + perturbation.

    With a `perturbation` (P,), such as SAM's rho g / |g|, the value is a tensor of the smallest
    eigenvalues at `points` equally spaced places on the path, both ends included; the lemma of
    CSAM asks for all of them to be at least -|g| / rho.
    """
    if perturbation is None:
        return _extreme(model, data, loss, "hessian", -1.0, rtol, options)
    if points < 2:
        raise ValueError(f"a path has at least 2 points; got {points}")
    check_rtol(rtol)

    budget = options.pop("budget", 200.0)
    seed = options.pop("seed", 0)
    curvature = LossCurvature(model, data, loss, **options)
    if not torch.is_tensor(perturbation) or perturbation.shape != (curvature.size,):
        came = getattr(perturbation, "shape", type(perturbation).__name__)
        raise ValueError(
            f"perturbation must be one vector of the {curvature.size} parameters measured; got "
            f"{came}: join tensors by torch.cat([t.flatten() for t in tensors])"
        )
    operator = DirectOperator(curvature, "hessian", -1.0)

    # Every point starts from the vectors of the point before.
    solutions: list[Solution] = []
    start = random_vectors(1, curvature.vector_like, seed)
    for share in np.linspace(0.0, 1.0, points):
        with curvature.displaced(float(share) * perturbation):
            solutions.append(solve(EagerBasis(operator, start), rtol=rtol, budget=budget))
        start = solutions[-1].vectors

    converged = all(s.converged for s in solutions)
    return Result(
        value=-torch.tensor([s.values[0] for s in solutions]),
        error=max(s.error_of(0) for s in solutions),
        residual=max(s.residuals[0] for s in solutions),
        products=sum(s.products for s in solutions),
        converged=converged,
        note="" if converged else "some point did not converge",
    )


def top_eigenpairs(
    model: nn.Module,
    data: Data,
    k: int = 1,
    loss: LossLike = "ce",
    rtol: float = 1e-3,
    *,
    matrix: Matrix = "gn",
    which: Literal["largest", "smallest"] = "largest",
    **options: Any,
) -> Eigenpairs:
    """Find k extreme eigenvalues of a matrix ("gn", "hessian", "fisher") with their vectors."""
    if matrix not in MATRICES:
        raise ValueError(f"matrix must be one of {MATRICES}; got {matrix!r}")
    if which not in ("largest", "smallest"):
        raise ValueError(f'which must be "largest" or "smallest"; got {which!r}')
    check_count("k", k)
    check_rtol(rtol)

    budget = options.pop("budget", 100.0 + 50.0 * k)
    seed = options.pop("seed", 0)
    curvature = LossCurvature(model, data, loss, **options)
    if k > curvature.size:
        raise ValueError(f"k = {k} is more than the {curvature.size} parameters")

    sign = 1.0 if which == "largest" else -1.0
    operator = operator_for(curvature, matrix, sign)
    basis = EagerBasis(operator, random_vectors(1, curvature.vector_like, seed))
    solution = solve(basis, k, rtol, budget, largest_basis=max(30, 3 * k + 10))
    return as_eigenpairs(solution, k, sign)


def as_eigenpairs(solution: Solution, k: int, sign: float = 1.0) -> Eigenpairs:
    """Return the first k pairs of a solution; `sign` -1 turns them to smallest eigenvalues."""
    error = max(solution.error_of(i) for i in range(k))
    return Eigenpairs(
        value=torch.from_numpy(sign * solution.values[:k]),
        error=error,
        residual=float(solution.residuals.max()),
        products=solution.products,
        converged=solution.converged,
        note=solution.note(error),
        vectors=solution.vectors[:k],
    )


def _extreme(
    model: nn.Module,
    data: Data,
    loss: LossLike,
    matrix: Matrix,
    sign: float,
    rtol: float,
    options: dict[str, Any],
) -> Result:
    """Measure the largest eigenvalue of a matrix, or with `sign` -1 the smallest."""
    check_rtol(rtol)
    budget = options.pop("budget", 200.0)
    seed = options.pop("seed", 0)
    curvature = LossCurvature(model, data, loss, **options)

    operator = operator_for(curvature, matrix, sign)
    basis = EagerBasis(operator, random_vectors(1, curvature.vector_like, seed))
    return solve(basis, rtol=rtol, budget=budget).to_result(sign)
