"""How sharp: curvature of the loss, matrix-free, with an error on every number."""

from toosure.curvature.critical import critical_sharpness
from toosure.curvature.jacobian import jacobian_norms
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.curvature.products.loss_hessian import MSE, CrossEntropy
from toosure.curvature.result import Eigenpairs, Result
from toosure.curvature.sharpness import (
    gn_sharpness,
    hessian_sharpness,
    kappa_min,
    top_eigenpairs,
)
from toosure.curvature.stochastic import batch_sharpness, gni, spectral_density, trace
from toosure.curvature.tracker import CurvatureTracker

__all__ = [
    "MSE",
    "CrossEntropy",
    "CurvatureTracker",
    "Eigenpairs",
    "LossCurvature",
    "Result",
    "batch_sharpness",
    "critical_sharpness",
    "gn_sharpness",
    "gni",
    "hessian_sharpness",
    "jacobian_norms",
    "kappa_min",
    "spectral_density",
    "top_eigenpairs",
    "trace",
]
