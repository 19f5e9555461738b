"""How sharp: the extreme eigenvalues of the Gauss-Newton matrix and of the Hessian."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from toosure.curvature.eigen.eager_basis import Basis
from toosure.curvature.eigen.solver import Solution, random_vectors, solve
from toosure.curvature.operators import GaussNewton, Operator, Whole
from toosure.curvature.products.checks import check_rtol
from toosure.curvature.products.loss_curvature import MATRICES, Matrix, Problem
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.result import Eigenpairs, Result
from toosure.metrics.inputs import check_count

Data = tuple[Tensor, Tensor]


def gn_sharpness(
    model: nn.Module, data: Data, loss: LossLike = "ce", rtol: float = 1e-3, **options: Any
) -> Result:
    """Measure lambda_max of the Gauss-Newton matrix (1/n) sum_i J_i^T H_z J_i.

    The curvature of "Too Sharp, Too Sure" (arXiv 2604.20614). Options: `parameters` (names or
    patterns), `chunk`, `mode`, `group` (see `Problem`), `budget` (products), `seed`.

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
    budget, seed = options.pop("budget", 200.0), options.pop("seed", 0)
    problem = Problem(model, data, loss, **options)
    operator: Operator = Whole(problem, "hessian", -1.0)
    solutions: list[Solution] = []
    start = _start(problem, seed)
    for share in np.linspace(0.0, 1.0, points):
        with problem.displaced(float(share) * perturbation):
            solutions.append(solve(Basis(operator, start), rtol=rtol, budget=budget))
        start = solutions[-1].vectors
    return Result(
        value=-torch.tensor([s.values[0] for s in solutions]),
        error=max(s.error_of(0) for s in solutions),
        residual=max(s.residuals[0] for s in solutions),
        products=sum(s.products for s in solutions),
        converged=all(s.converged for s in solutions),
        note="" if all(s.converged for s in solutions) else "some point did not converge",
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
    budget, seed = options.pop("budget", 100.0 + 50.0 * k), options.pop("seed", 0)
    problem = Problem(model, data, loss, **options)
    if k > problem.size:
        raise ValueError(f"k = {k} is more than the {problem.size} parameters")
    sign = 1.0 if which == "largest" else -1.0
    operator = operator_for(problem, matrix, sign)
    basis = Basis(operator, _start(problem, seed))
    found = solve(basis, k, rtol, budget, largest_basis=max(30, 3 * k + 10))
    summary = as_result(found, sign)
    return Eigenpairs(
        value=torch.from_numpy(sign * found.values[:k]),
        error=max(found.error_of(i) for i in range(k)),
        residual=float(found.residuals.max()),
        products=found.products,
        converged=found.converged,
        note=summary.note,
        vectors=found.vectors[:k],
    )


def operator_for(problem: Problem, matrix: Matrix, sign: float = 1.0) -> Operator:
    """The cheapest operator for a matrix: factored where only its top is sought."""
    if matrix == "hessian" or sign < 0:
        return Whole(problem, matrix, sign)
    return GaussNewton(problem, matrix)


def as_result(found: Solution, sign: float = 1.0) -> Result:
    """The first pair of a solution as a result."""
    value, error = sign * float(found.values[0]), found.error_of(0)
    if not np.isfinite(value):
        note = "not finite: the model's outputs or derivatives overflow"
    elif not found.converged:
        note = f"not converged after {found.products:g} products: estimated error {error:.1e}"
    else:
        note = ""
    residual = float(found.residuals[0])
    return Result(value, error, residual, found.products, found.converged, note)


def _extreme(
    model: nn.Module,
    data: Data,
    loss: LossLike,
    matrix: Matrix,
    sign: float,
    rtol: float,
    options: dict[str, Any],
) -> Result:
    check_rtol(rtol)
    budget, seed = options.pop("budget", 200.0), options.pop("seed", 0)
    problem = Problem(model, data, loss, **options)
    operator = operator_for(problem, matrix, sign)
    basis = Basis(operator, _start(problem, seed))
    return as_result(solve(basis, rtol=rtol, budget=budget), sign)


def _start(problem: Problem, seed: int) -> Tensor:
    like = torch.empty(0, problem.size, dtype=problem.dtype, device=problem.device)
    return random_vectors(1, like, seed)
