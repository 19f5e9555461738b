"""The measurements behind a certificate: margins, moments, and the size of rounding."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from toosure.margins.certified import CertifiedBounds
from toosure.margins.clean_pass import CleanPass
from toosure.margins.exponential_moments import log_moment
from toosure.margins.label_shift import Shift
from toosure.margins.robust import Kind, RobustMargin
from toosure.margins.statements import EPS64, side_problem

KINDS: tuple[Kind, ...] = ("certified", "attacked", "linearised")  # the strongest first


@dataclass(frozen=True)
class Curvature:
    """C_J = max_i ||J_i||_op and lambda_max of the Gauss-Newton matrix, or why they are missing."""

    c_j: float = math.nan
    sharpness: float = math.nan
    problem: str = "not measured"  # "" if both are finite and converged


@dataclass(frozen=True)
class Measurements:
    """Hold everything that was measured on one model and one data set."""

    clean: CleanPass
    attacked: RobustMargin
    linearised: RobustMargin
    float64_margins: Tensor  # (N,): the clean margins, with the network evaluated in float64
    certified: CertifiedBounds | None = None
    missing: str = "no certified margins for this network"  # why `certified` is None
    curvature: Curvature = Curvature()
    test: tuple[CleanPass, Shift] | None = None
    dtype_eps: float = EPS64  # relative rounding of the model's own dtype

    @property
    def classes(self) -> int:
        return self.clean.classes

    @property
    def ece(self) -> float:
        return self.clean.sums()[0]

    @property
    def c_j(self) -> float:
        return self.curvature.c_j

    @cached_property
    def margins(self) -> Tensor:
        return torch.cat(self.clean.true_margins)

    @property
    def separation(self) -> str:
        """Why Theorem 4.2 does not apply, or "" when every margin is positive."""
        wrong = int((self.margins <= 0).sum())
        if not wrong:
            return ""
        return f"not separated: {wrong:,} of {self.clean.n:,} points have margin <= 0"

    @cached_property
    def drift(self) -> float:
        """The largest difference between a margin in the model's dtype and in float64, measured."""
        return float((self.margins - self.float64_margins).abs().amax())

    @property
    def float64_error(self) -> float:
        """A bound of the error of a margin evaluated in float64: 64 ulp of its logits."""
        assert self.clean.largest is not None
        return 64 * EPS64 * (1 + float(self.clean.largest))

    @property
    def rounding(self) -> float:
        """The relative error between moments or ECE of the model's dtype and float64 margins."""
        return self.clean.rounding + (math.expm1(self.drift) if self.drift < 700 else math.inf)

    @property
    def robust(self) -> dict[str, RobustMargin]:
        """The robust margins that were computed, by kind."""
        certified = {"certified": self.certified.margin} if self.certified else {}
        return certified | {"attacked": self.attacked, "linearised": self.linearised}

    def right_problem(self, kind: str) -> str:
        """Return why margins of a kind prove nothing on the right side; "" if they do."""
        margin = self.robust.get(kind)
        return side_problem(margin, "right") if margin else self.missing

    @cached_property
    def log_moments(self) -> dict[str, float]:
        """All moments of the paper, as logarithms."""
        moments = {"Q_D": self.clean.true.compute(), "Q_predicted": self.clean.predicted.compute()}
        for kind, margin in self.robust.items():
            moments[f"Q_eps {kind}"] = float(log_moment(margin.values))

        if self.certified:
            growth = self.attacked.eps * self.certified.lipschitz
            moments["Q-"] = float(log_moment(self.attacked.values, -growth))
            moments["Q+"] = float(log_moment(self.certified.margin.values, growth))
        return moments

    def log_q(self, name: str) -> float:
        """Return one of the moments, NaN where it is missing."""
        return self.log_moments.get(name, math.nan)
