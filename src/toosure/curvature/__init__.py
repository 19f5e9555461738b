"""How sharp: curvature of the loss, matrix-free, with an error on every number."""

from toosure.curvature.outputs import MSE, CrossEntropy
from toosure.curvature.problem import Problem
from toosure.curvature.result import Eigenpairs, Result
from toosure.curvature.sharpness import (
    gn_sharpness,
    hessian_sharpness,
    kappa_min,
    top_eigenpairs,
)

__all__ = [
    "MSE",
    "CrossEntropy",
    "Eigenpairs",
    "Problem",
    "Result",
    "gn_sharpness",
    "hessian_sharpness",
    "kappa_min",
    "top_eigenpairs",
]
