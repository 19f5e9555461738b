"""The two bounds by an exponential moment Q that most theorems use: of ECE and of lambda_max."""

import math

from toosure.margins.measurements import Measurements
from toosure.margins.statements import Statement, exp, judge


def ece_bound(
    name: str,
    measured: Measurements,
    log_q: float,
    symbol: str,
    *,
    rounding: float | None = None,
    problem: str = "",
    reason: str = "",
) -> Statement:
    """ECE <= (K - 1) Q, vacuous from 1 on; there is no verdict if there is a `problem`.

    Without `rounding` it is the one of the clean pass.
    """
    return judge(
        name,
        f"ECE <= (K-1) {symbol}",
        measured.ece,
        exp(log_q + math.log(measured.classes - 1)),
        rounding=measured.clean.rounding if rounding is None else rounding,
        cap=1.0,
        applies=not problem,
        reason=problem or reason,
    )


def curvature_bound(
    name: str,
    measured: Measurements,
    log_q: float,
    symbol: str,
    *,
    problem: str = "",
    reason: str = "",
) -> Statement:
    """lambda_max <= 2 C_J^2 (K - 1) Q, vacuous from C_J^2 / 2 on: diag(p) - pp' <= 1/2."""
    unmeasured = measured.curvature.problem
    return judge(
        name,
        f"lambda_max <= 2 C_J^2 (K-1) {symbol}",
        measured.curvature.sharpness,
        2 * measured.c_j**2 * exp(log_q + math.log(measured.classes - 1)),
        rounding=curvature_rounding(measured),
        cap=measured.c_j**2 / 2,
        applies=not (problem or unmeasured),
        reason=problem or reason or unmeasured,
    )


def curvature_rounding(measured: Measurements) -> float:
    """Return the rounding of lambda_max, which is measured in the model's dtype."""
    return measured.rounding + 64 * measured.dtype_eps
