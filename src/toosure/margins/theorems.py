"""The statements of "Too Sharp, Too Sure", App. B, from the facts a certificate gathers."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from toosure.margins.clean import LEMMAS
from toosure.margins.facts import KINDS, Facts
from toosure.margins.statements import UNDERFLOW, Statement, exp, judge, side_problem


def all_statements(facts: Facts) -> tuple[Statement, ...]:
    """Return every statement, in the paper's order; what is missing has a NaN side and a reason."""
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
    """Robust margins against clean ones, all in float64, at the sample closest to failing."""
    found, clean, proved = facts.attacked.values, facts.exact, facts.proved
    low = clean - facts.attacked.eps * proved.lipschitz if proved else None
    certified = proved.margin.values if proved else None
    return [
        closest("B.5 (4)", "attacked m_eps <= m", facts, found, clean),
        closest("B.5 (5)", "m - eps L_m <= attacked m_eps", facts, low, found),
        closest("B.5 kinds", "certified <= attacked", facts, certified, found),
    ]


def closest(name: str, claim: str, facts: Facts, left: Tensor | None, right: Tensor) -> Statement:
    """Judge two sides of shape (N,) where they are closest to failing; None was not proved."""
    if left is None:
        return judge(name, claim, math.nan, math.nan, rounding=0.0, reason=facts.unproved)
    worst = int((left - right).argmax())
    return judge(name, claim, float(left[worst]), float(right[worst]), rounding=0.0,
                 floor=facts.noise, reason=f"closest of {len(right):,}")  # fmt: skip


def ece_bound(name: str, facts: Facts, log_q: float, symbol: str, **extra: Any) -> Statement:
    """ECE <= (K - 1) Q, vacuous from 1 on."""
    right = exp(log_q + math.log(facts.k - 1))
    settings: dict[str, Any] = {"rounding": facts.clean.rounding, "cap": 1.0} | extra
    return judge(name, f"ECE <= (K-1) {symbol}", facts.ece, right, **settings)


def curvature_bound(name: str, facts: Facts, log_q: float, symbol: str, **extra: Any) -> Statement:
    """lambda_max <= 2 C_J^2 (K - 1) Q, vacuous from C_J^2 / 2 on: diag(p) - pp' <= 1/2."""
    right = 2 * facts.c_j**2 * exp(log_q + math.log(facts.k - 1))
    known, why = facts.curvature, extra.get("reason", "")
    applies = extra.get("applies", True) and not known.problem
    claim = f"lambda_max <= 2 C_J^2 (K-1) {symbol}"
    allowed = facts.rounding + 64 * facts.unit
    return judge(name, claim, known.sharpness, right, rounding=allowed, cap=facts.c_j**2 / 2,
                 applies=applies, reason=why or known.problem)  # fmt: skip


def robust_sides(facts: Facts, maker: Callable[..., Statement], name: str) -> list[Statement]:
    """A bound by Q_eps with each kind of margin, and by Q+; all but the certified are estimates."""
    found = []
    for kind in KINDS:
        problem, log_q = facts.right_problem(kind), facts.log_q(f"Q_eps {kind}")
        extra = {"applies": not problem, "reason": problem, "rounding": facts.rounding}
        found.append(maker(f"{name} {kind}", facts, log_q, f"Q_eps [{kind}]", **extra))
    missing = "" if facts.proved else facts.unproved
    extra = {"reason": missing, "rounding": facts.rounding}
    found.append(maker(f"{name} Q+", facts, facts.log_q("Q+"), "Q+ [certified]", **extra))
    return found


def calibration(facts: Facts) -> list[Statement]:
    """Theorem 4.1 (i)."""
    clean = ece_bound("4.1 (i)", facts, facts.log_q("Q_D"), "Q_D")
    return [clean, *robust_sides(facts, ece_bound, "4.1 (i)")]


def curvature(facts: Facts) -> list[Statement]:
    """Theorem 4.1 (ii)."""
    clean = curvature_bound("4.1 (ii)", facts, facts.log_q("Q_D"), "Q_D")
    return [clean, *robust_sides(facts, curvature_bound, "4.1 (ii)")]


def separated(facts: Facts) -> list[Statement]:
    """Theorem 4.2 (i)-(v), which asks for every margin to be positive."""
    ece, _, misconfidence = facts.clean.sums()
    k, log_q, why = facts.k, facts.log_q("Q_D"), facts.separation
    both: dict[str, Any] = {"rounding": facts.clean.rounding, "applies": not why, "reason": why}
    upper, gamma = (k - 1) * exp(log_q), (k - 1) * exp(-float(facts.margins.amin()))
    claim = "ECE = mean(1 - p_y), whatever the bins (larger <= smaller)"
    pair = sorted((ece, misconfidence), reverse=True)
    return [
        judge("4.2 (i) lower", "Q_D / K <= ECE", exp(log_q) / k, ece, base=UNDERFLOW, **both),
        ece_bound("4.2 (i) upper", facts, log_q, "Q_D", **both),
        judge("4.2 (i) gamma", "(K-1) Q_D <= (K-1) exp(-gamma)", min(upper, 1.0), gamma, cap=1.0,
              **both),
        *separated_curvature(facts, upper, both),
        *separated_robust(facts, both),
        judge("4.2 (v)", claim, *pair, **both),
    ]  # fmt: skip


def separated_curvature(facts: Facts, upper: float, both: dict[str, Any]) -> list[Statement]:
    """Theorem 4.2 (ii) and (iii); a bound of lambda_max beyond C_J^2 / 2 is clamped there."""
    ece, scale, cap = facts.ece, 2 * facts.c_j**2, facts.c_j**2 / 2
    factor, known = facts.k * (facts.k - 1), facts.curvature
    why = both["reason"]
    settings: dict[str, Any] = {
        "applies": not (why or known.problem),
        "reason": why or known.problem,
    }
    claim = "2 C_J^2 (K-1) Q_D <= 2 C_J^2 K (K-1) ECE"
    chain = {**both, "reason": why or ("" if facts.c_j == facts.c_j else known.problem)}
    ratio, rounding = known.sharpness / (scale * factor), facts.rounding + 64 * facts.unit
    return [
        curvature_bound("4.2 (ii)", facts, facts.log_q("Q_D"), "Q_D", applies=not why, reason=why),
        judge("4.2 (ii) ECE", claim, min(scale * upper, cap), scale * factor * ece, cap=cap,
              **chain),
        judge("4.2 (iii)", "lambda_max / (2 C_J^2 K (K-1)) <= ECE", ratio, ece, base=UNDERFLOW,
              rounding=rounding, **settings),
    ]  # fmt: skip


def separated_robust(facts: Facts, both: dict[str, Any]) -> list[Statement]:
    """Theorem 4.2 (iv): attacked margins with a certified L_m below, certified ones above."""
    why = both["reason"] or ("" if facts.proved else facts.unproved)
    wrong_side = side_problem(facts.attacked, "left")
    above: dict[str, Any] = {"rounding": facts.rounding, "applies": not why, "reason": why}
    below = {**above, "applies": not (why or wrong_side), "reason": why or wrong_side}
    left, log_q = exp(facts.log_q("Q-")) / facts.k, facts.log_q("Q_eps certified")
    claim = "Q- [attacked, certified L_m] / K <= ECE"
    return [
        judge("4.2 (iv) lower", claim, left, facts.ece, base=UNDERFLOW, **below),
        ece_bound("4.2 (iv) upper", facts, log_q, "Q_eps [certified]", **above),
        curvature_bound("4.2 (iv) curvature", facts, log_q, "Q_eps [certified]", **above),
    ]


def label_free(facts: Facts) -> list[Statement]:
    """Remark B.6, for the logits and for the Gauss-Newton matrix."""
    whole = curvature_bound("B.6 GN", facts, facts.log_q("Q_predicted"), "Q_predicted")
    return [facts.clean.statement("B.6"), whole]


def worst_case(facts: Facts) -> list[Statement]:
    """Proposition B.7: what an attack reaches stays below what the certified margins allow."""
    sides = facts.log_q("Q_eps attacked"), facts.log_q("Q_eps certified")
    claim = "log Q_eps [attacked] <= log Q_eps [certified]"
    allowed, reason = facts.clean.rounding + facts.noise, "" if facts.proved else facts.unproved
    return [judge("B.7", claim, *sides, rounding=0.0, floor=allowed, reason=reason)]


def transfer(facts: Facts) -> list[Statement]:
    """Theorem 4.1 (i) on the test set, and Corollary B.8 from the training side."""
    if facts.test is None:
        return []
    clean, shift = facts.test
    ece, others = clean.sums()[0], math.log(facts.k - 1)
    own = exp(clean.true.compute() + others)
    claim = "test ECE <= (K-1) Q_D of the test set"
    problem = facts.right_problem("certified")
    return [
        judge("4.1 (i) test", claim, ece, own, rounding=clean.rounding, cap=1.0),
        judge(
            "B.8",
            "test ECE <= (K-1) Q_eps [certified] of the training set",
            ece,
            exp(facts.log_q("Q_eps certified") + others),
            rounding=clean.rounding + facts.rounding,
            cap=1.0,
            reason="; ".join(part for part in (problem, shift.reason) if part),
            applies=shift.holds and not problem,
        ),
    ]
