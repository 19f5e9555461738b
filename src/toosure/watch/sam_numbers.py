"""The quantities of `--measure sam_theory`: the step that SAM would take now."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from toosure.margins import SamCertificate, certify_sam
from toosure.margins.sam_step import NoStep
from toosure.quantities.of_sam import SAM_PATH

# A function where the optimizer may change it; a tensor is read when the row is measured.
SamRadius = float | Callable[[], float | Tensor]
RHO = 0.05  # if the optimizer has no radius
RTOL = 0.02  # of an eigenvalue: enough for a figure, and half the time of .001


def fixed_batch(data: tuple[Tensor, Tensor], size: int) -> tuple[Tensor, Tensor]:
    """Return `size` examples of a split, the same at every call."""
    x, y = data
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:size]
    return x[rows.to(x.device)], y[rows.to(y.device)]


def sam_numbers(
    model: nn.Module, batch: tuple[Tensor, Tensor], rho: SamRadius
) -> dict[str, float | bool]:
    """Return the quantities of `sam_theory` on one batch; none where the gradient is zero."""
    radius = float(rho() if callable(rho) else rho)
    if not radius > 0:  # a controller may have turned the perturbation off
        return {}
    try:
        certificate = certify_sam(
            model, batch, rho=radius, points=len(SAM_PATH), samples=0, rtol=RTOL, mode="train"
        )
    except NoStep:
        return {}
    return numbers_of(certificate)


def numbers_of(certificate: SamCertificate) -> dict[str, float | bool]:
    """Return a certificate by the keys of a row; a lambda_0 that does not exist is left out."""
    numbers: dict[str, float | bool] = dict(
        zip(SAM_PATH.values(), certificate.kappa_min, strict=True)
    )
    if not certificate.converged:
        numbers["sam_kappa_min_unconverged"] = True

    numbers |= {
        "sam_kappa_bound": -certificate.gradient_norm / certificate.rho,
        "sam_lambda": certificate.lam,
        "sam_lambda_0": certificate.lam0,
        "sam_p_y": certificate.p_y,
        "sam_p_y_perturbed": certificate.p_y_perturbed,
        "sam_entropy": certificate.entropy,
        "sam_failed": len(certificate.failed),
    }
    return {key: value for key, value in numbers.items() if not math.isnan(value)}
