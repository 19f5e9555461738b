"""What a certificate measures before any verdict: margins, moments, and what rounding does."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from toosure.margins.certified import Certified
from toosure.margins.clean import CleanPass
from toosure.margins.moments import log_moment
from toosure.margins.robust import Kind, RobustMargin
from toosure.margins.statements import EPS64, side_problem
from toosure.margins.transfer import Shift

KINDS: tuple[Kind, ...] = ("certified", "attacked", "linearised")  # best founded first


@dataclass(frozen=True)
class Curvature:
    """C_J = max_i ||J_i||_op and lambda_max of the Gauss-Newton matrix, or why not."""

    c_j: float = math.nan
    sharpness: float = math.nan
    problem: str = "not measured"  # "" when both are as good as they should be


@dataclass(frozen=True)
class Facts:
    """Everything measured, before any verdict."""

    clean: CleanPass
    attacked: RobustMargin
    linearised: RobustMargin
    exact: Tensor  # (N,): the clean margins, with the network evaluated in float64
    proved: Certified | None = None
    unproved: str = "no certified margins for this network"  # why `proved` is missing
    curvature: Curvature = Curvature()
    test: tuple[CleanPass, Shift] | None = None
    unit: float = EPS64  # relative rounding of the model's own dtype

    @property
    def k(self) -> int:
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
        below = int((self.margins <= 0).sum())
        n = self.clean.n
        return f"not separated: {below:,} of {n:,} points have margin <= 0" if below else ""

    @cached_property
    def drift(self) -> float:
        """How far the model's own dtype moves a margin from float64: measured, the largest."""
        return float((self.margins - self.exact).abs().amax())

    @property
    def noise(self) -> float:
        """How far a margin evaluated in float64 may be from the exact one: 64 ulp of its logits."""
        assert self.clean.largest is not None
        return 64 * EPS64 * (1 + float(self.clean.largest))

    @property
    def rounding(self) -> float:
        """The relative error between moments or ECE of the model's dtype and float64 margins."""
        return self.clean.rounding + (math.expm1(self.drift) if self.drift < 700 else math.inf)

    @property
    def robust(self) -> dict[str, RobustMargin]:
        """The robust margins at hand, by kind."""
        proved = {"certified": self.proved.margin} if self.proved else {}
        return proved | {"attacked": self.attacked, "linearised": self.linearised}

    def right_problem(self, kind: str) -> str:
        """Why margins of a kind may not stand on the right, or "" if they may."""
        margin = self.robust.get(kind)
        return side_problem(margin, "right") if margin else self.unproved

    @cached_property
    def log_moments(self) -> dict[str, float]:
        """All moments of the paper, as logarithms."""
        moments = {"Q_D": self.clean.true.compute(), "Q_predicted": self.clean.predicted.compute()}
        moments |= {f"Q_eps {kind}": float(log_moment(m.values)) for kind, m in self.robust.items()}
        if self.proved:
            growth = self.attacked.eps * self.proved.lipschitz
            moments["Q-"] = float(log_moment(self.attacked.values, -growth))
            moments["Q+"] = float(log_moment(self.proved.margin.values, growth))
        return moments

    def log_q(self, name: str) -> float:
        """Return one of the moments, NaN where it is missing."""
        return self.log_moments.get(name, math.nan)
