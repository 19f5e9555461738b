"""The statements of "Too Sharp, Too Sure", App. B, from the facts a certificate gathers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toosure.margins.certified import Certified
from toosure.margins.clean import LEMMAS, CleanPass
from toosure.margins.moments import log_moment
from toosure.margins.robust import RobustMargin
from toosure.margins.statements import Statement, exp, judge, side_problem
from toosure.margins.transfer import Shift


@dataclass(frozen=True)
class Facts:
    """Everything measured, before any verdict."""

    clean: CleanPass
    attacked: RobustMargin
    linearised: RobustMargin
    proved: Certified | None
    c_j: float  # max_i ||J_i||_op
    sharpness: float  # lambda_max of the Gauss-Newton matrix
    test: tuple[CleanPass, Shift] | None
    unit: float  # relative rounding of the model's own dtype

    @property
    def k(self) -> int:
        return self.clean.classes

    @property
    def ece(self) -> float:
        return self.clean.sums()[0]

    @property
    def margins(self) -> Tensor:
        return torch.cat(self.clean.true_margins)

    @property
    def separation(self) -> str:
        """Why Theorem 4.2 does not apply, or "" when every margin is positive."""
        below = int((self.margins <= 0).sum())
        n = self.clean.n
        return f"not separated: {below:,} of {n:,} points have margin <= 0" if below else ""

    @property
    def logit_rounding(self) -> float:
        """How far a pass in the model's dtype may be from exact logits: 64 ulp of the largest."""
        assert self.clean.largest is not None
        return 64 * self.unit * (1 + float(self.clean.largest))

    def kinds(self) -> list[RobustMargin]:
        """The robust margins at hand, best founded first."""
        proved = [self.proved.margin] if self.proved else []
        return [*proved, self.attacked, self.linearised]

    def log_moments(self) -> dict[str, float]:
        """All moments of the paper, as logarithms."""
        moments = {"Q_D": self.clean.true.compute(), "Q_predicted": self.clean.predicted.compute()}
        moments |= {f"Q_eps {m.kind}": float(log_moment(m.values)) for m in self.kinds()}
        if self.proved:
            growth = self.attacked.eps * self.proved.lipschitz
            moments["Q-"] = float(log_moment(self.attacked.values, -growth))
            moments["Q+"] = float(log_moment(self.proved.margin.values, growth))
        return moments


def all_statements(facts: Facts) -> tuple[Statement, ...]:
    """Return every statement, in the paper's order."""
    parts = (lemma_b1, lemmas, lemma_b5, calibration, curvature, separated, label_free, worst_case,
             transfer)  # fmt: skip
    return tuple(statement for part in parts for statement in part(facts))


def lemma_b1(facts: Facts) -> list[Statement]:
    """ECE is at most the mean distance between correctness and confidence."""
    ece, gap, _ = facts.clean.sums()
    claim = "ECE <= mean |correct - confidence|"
    return [judge("B.1", claim, ece, gap, rounding=facts.clean.rounding, cap=1.0)]


def lemmas(facts: Facts) -> list[Statement]:
    """The pointwise Lemmas B.2-B.4."""
    return [facts.clean.statement(name) for name in LEMMAS if name != "B.6"]


def lemma_b5(facts: Facts) -> list[Statement]:
    """Robust margins against clean ones, at the sample closest to failing."""
    clean = facts.margins
    pairs = [("B.5 (4)", "attacked m_eps <= m", facts.attacked.values, clean)]
    if facts.proved:
        low = clean - facts.attacked.eps * facts.proved.lipschitz
        pairs.append(("B.5 (5)", "m - eps L_m <= attacked m_eps", low, facts.attacked.values))
        proved = facts.proved.margin.values
        pairs.append(("B.5 kinds", "certified <= attacked", proved, facts.attacked.values))
    statements = []
    for name, claim, left, right in pairs:
        worst = int((left - right).argmax())
        sides = float(left[worst]), float(right[worst])
        reason = f"closest of {len(clean):,}"
        statements.append(
            judge(name, claim, *sides, rounding=0.0, floor=facts.logit_rounding, reason=reason)
        )
    return statements


def ece_bound(name: str, facts: Facts, log_q: float, symbol: str, **extra: Any) -> Statement:
    """ECE <= (K - 1) Q, vacuous from 1 on."""
    right = exp(log_q + math.log(facts.k - 1))
    settings: dict[str, Any] = {"rounding": facts.clean.rounding, "cap": 1.0} | extra
    return judge(name, f"ECE <= (K-1) {symbol}", facts.ece, right, **settings)


def curvature_bound(name: str, facts: Facts, log_q: float, symbol: str, **extra: Any) -> Statement:
    """lambda_max <= 2 C_J^2 (K - 1) Q, vacuous from C_J^2 / 2 on: diag(p) - pp' <= 1/2."""
    right = 2 * facts.c_j**2 * exp(log_q + math.log(facts.k - 1))
    settings: dict[str, Any] = {"rounding": facts.clean.rounding + facts.logit_rounding} | extra
    settings["reason"] = extra.get("reason") or ("" if facts.c_j == facts.c_j else "not measured")
    claim = f"lambda_max <= 2 C_J^2 (K-1) {symbol}"
    return judge(name, claim, facts.sharpness, right, cap=facts.c_j**2 / 2, **settings)


def robust_sides(facts: Facts, maker: Callable[..., Statement], name: str) -> list[Statement]:
    """A bound by Q_eps with each kind of margin; all but the certified are estimates."""
    found = []
    for margin in facts.kinds():
        problem = side_problem(margin, "right")
        allowed = facts.clean.rounding + facts.logit_rounding
        extra = {"applies": not problem, "reason": problem, "rounding": allowed}
        log_q = float(log_moment(margin.values))
        found.append(
            maker(f"{name} {margin.kind}", facts, log_q, f"Q_eps [{margin.kind}]", **extra)
        )
    return found


def calibration(facts: Facts) -> list[Statement]:
    """Theorem 4.1 (i)."""
    found = [ece_bound("4.1 (i)", facts, facts.clean.true.compute(), "Q_D")]
    found += robust_sides(facts, ece_bound, "4.1 (i)")
    if facts.proved:
        allowed = facts.clean.rounding + facts.logit_rounding
        log_q = facts.log_moments()["Q+"]
        found.append(ece_bound("4.1 (i) Q+", facts, log_q, "Q+ [certified]", rounding=allowed))
    return found


def curvature(facts: Facts) -> list[Statement]:
    """Theorem 4.1 (ii)."""
    found = [curvature_bound("4.1 (ii)", facts, facts.clean.true.compute(), "Q_D")]
    found += robust_sides(facts, curvature_bound, "4.1 (ii)")
    if facts.proved:
        log_q = facts.log_moments()["Q+"]
        found.append(curvature_bound("4.1 (ii) Q+", facts, log_q, "Q+ [certified]"))
    return found


def separated(facts: Facts) -> list[Statement]:
    """Theorem 4.2 (i)-(v), which asks for every margin to be positive."""
    ece, _, misconfidence = facts.clean.sums()
    k, log_q, why = facts.k, facts.clean.true.compute(), facts.separation
    rounding, applies = facts.clean.rounding, not why
    both: dict[str, Any] = {"rounding": rounding, "applies": applies, "reason": why}
    least = float(facts.margins.amin())
    upper = (k - 1) * exp(log_q)
    found = [
        judge("4.2 (i) lower", "Q_D / K <= ECE", exp(log_q) / k, ece, **both),
        ece_bound("4.2 (i) upper", facts, log_q, "Q_D", **both),
        judge(
            "4.2 (i) gamma", "(K-1) Q_D <= (K-1) exp(-gamma)", upper, (k - 1) * exp(-least), **both
        ),
        curvature_bound("4.2 (ii)", facts, log_q, "Q_D", applies=applies, reason=why),
    ]
    scale = 2 * facts.c_j**2
    claim = "2 C_J^2 (K-1) Q_D <= 2 C_J^2 K (K-1) ECE"
    found.append(judge("4.2 (ii) ECE", claim, scale * upper, scale * k * (k - 1) * ece, **both))
    claim, left = "lambda_max / (2 C_J^2 K (K-1)) <= ECE", facts.sharpness / (scale * k * (k - 1))
    loose = {**both, "rounding": rounding + facts.logit_rounding}
    found.append(judge("4.2 (iii)", claim, left, ece, **loose))
    found += separated_robust(facts, loose)
    gap, claim = abs(ece - misconfidence), "|ECE - mean(1 - p_y)| <= 0, whatever the bins"
    found.append(judge("4.2 (v)", claim, gap, 0.0, floor=rounding * ece, **both))
    return found


def separated_robust(facts: Facts, settings: dict[str, Any]) -> list[Statement]:
    """Theorem 4.2 (iv): attacked margins with a certified L_m below, certified ones above."""
    why = settings["reason"]
    if facts.proved is None:
        reason = why or "no certified bounds for this network"
        return [judge("4.2 (iv)", "Q- / K <= ECE <= (K-1) Q_eps", math.nan, math.nan,
                      rounding=0.0, reason=reason)]  # fmt: skip
    problem = side_problem(facts.attacked, "left")
    left = exp(facts.log_moments()["Q-"]) / facts.k
    lower = {**settings, "applies": settings["applies"] and not problem, "reason": why or problem}
    log_q = float(log_moment(facts.proved.margin.values))
    claim = "Q- [attacked, certified L_m] / K <= ECE"
    return [
        judge("4.2 (iv) lower", claim, left, facts.ece, **lower),
        ece_bound("4.2 (iv) upper", facts, log_q, "Q_eps [certified]", **settings),
        curvature_bound("4.2 (iv) curvature", facts, log_q, "Q_eps [certified]", **settings),
    ]


def label_free(facts: Facts) -> list[Statement]:
    """Remark B.6, for the logits and for the Gauss-Newton matrix."""
    found = [facts.clean.statement("B.6")]
    found.append(curvature_bound("B.6 GN", facts, facts.clean.predicted.compute(), "Q_predicted"))
    return found


def worst_case(facts: Facts) -> list[Statement]:
    """Proposition B.7: what an attack reaches stays below what the certified margins allow."""
    found = []
    if facts.proved:
        moments = facts.log_moments()
        sides = moments["Q_eps attacked"], moments["Q_eps certified"]
        claim = "log Q_eps [attacked] <= log Q_eps [certified]"
        found.append(judge("B.7", claim, *sides, rounding=0.0, floor=facts.clean.rounding))
    return found


def transfer(facts: Facts) -> list[Statement]:
    """Theorem 4.1 (i) on the test set, and Corollary B.8 from the training side."""
    if facts.test is None:
        return []
    clean, shift = facts.test
    ece, allowed = clean.sums()[0], clean.rounding
    right = exp(clean.true.compute() + math.log(facts.k - 1))
    claim = "test ECE <= (K-1) Q_D of the test set"
    found = [judge("4.1 (i) test", claim, ece, right, rounding=allowed, cap=1.0)]
    margin = facts.kinds()[0]
    problem = side_problem(margin, "right")
    right = exp(float(log_moment(margin.values)) + math.log(facts.k - 1))
    reason = "; ".join(part for part in (problem, shift.reason) if part)
    found.append(
        judge(
            "B.8",
            f"test ECE <= (K-1) Q_eps [{margin.kind}] of the training set",
            ece,
            right,
            rounding=allowed + facts.logit_rounding,
            cap=1.0,
            reason=reason,
            applies=shift.holds and not problem,
        )
    )
    return found
