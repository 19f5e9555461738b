"""The statements of "Too Sharp, Too Sure", App. B, from the measurements of a certificate."""

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor

from toosure.margins.clean_pass import LEMMAS
from toosure.margins.measurements import KINDS, Measurements
from toosure.margins.moment_bounds import curvature_bound, curvature_rounding, ece_bound
from toosure.margins.statements import UNDERFLOW, Statement, exp, judge, side_problem


def all_statements(measured: Measurements) -> tuple[Statement, ...]:
    """Return every statement, in the paper's order; a missing side is NaN and has a reason."""
    parts = (
        lemma_b1,
        pointwise_lemmas,
        lemma_b5,
        theorem_41_calibration,
        theorem_41_curvature,
        theorem_42,
        remark_b6,
        proposition_b7,
        corollary_b8,
    )
    return tuple(statement for part in parts for statement in part(measured))


def lemma_b1(measured: Measurements) -> list[Statement]:
    """ECE is at most the mean distance between correctness and confidence."""
    ece, gap, _ = measured.clean.sums()
    claim = "ECE <= mean |correct - confidence|"
    return [judge("B.1", claim, ece, gap, rounding=measured.clean.rounding, cap=1.0)]


def pointwise_lemmas(measured: Measurements) -> list[Statement]:
    """Lemmas B.2-B.4, which hold for each sample: the one closest to failing, from `clean_pass`."""
    return [measured.clean.statement(name) for name in LEMMAS if name != "B.6"]


def lemma_b5(measured: Measurements) -> list[Statement]:
    """Robust margins against clean ones, all in float64, at the sample closest to failing."""
    attacked = measured.attacked.values
    clean = measured.float64_margins
    certified = lower = None
    if measured.certified:
        certified = measured.certified.margin.values
        lower = clean - measured.attacked.eps * measured.certified.lipschitz
    return [
        closest("B.5 (4)", "attacked m_eps <= m", measured, attacked, clean),
        closest("B.5 (5)", "m - eps L_m <= attacked m_eps", measured, lower, attacked),
        closest("B.5 kinds", "certified <= attacked", measured, certified, attacked),
    ]


def closest(
    name: str, claim: str, measured: Measurements, left: Tensor | None, right: Tensor
) -> Statement:
    """Judge two sides of shape (N,) where they are closest to failing; None was not certified."""
    if left is None:
        return judge(name, claim, math.nan, math.nan, rounding=0.0, reason=measured.missing)

    worst = int((left - right).argmax())
    return judge(
        name,
        claim,
        float(left[worst]),
        float(right[worst]),
        rounding=0.0,
        floor=measured.float64_error,
        reason=f"closest of {len(right):,}",
    )


def robust_sides(
    measured: Measurements, bound: Callable[..., Statement], name: str
) -> list[Statement]:
    """A bound by Q_eps with each kind of margin, and by Q+; all but the certified are estimates."""
    statements = []
    for kind in KINDS:
        statement = bound(
            f"{name} {kind}",
            measured,
            measured.log_q(f"Q_eps {kind}"),
            f"Q_eps [{kind}]",
            problem=measured.right_problem(kind),
        )
        statements.append(statement)

    # Without certified margins Q+ is NaN, and that alone leaves the statement without a verdict.
    statement = bound(
        f"{name} Q+",
        measured,
        measured.log_q("Q+"),
        "Q+ [certified]",
        reason="" if measured.certified else measured.missing,
    )
    return [*statements, statement]


def theorem_41_calibration(measured: Measurements) -> list[Statement]:
    """Theorem 4.1 (i): ECE is at most (K - 1) Q, by clean margins and by robust ones."""
    clean = ece_bound("4.1 (i)", measured, measured.log_q("Q_D"), "Q_D")
    bound = partial(ece_bound, rounding=measured.rounding)
    return [clean, *robust_sides(measured, bound, "4.1 (i)")]


def theorem_41_curvature(measured: Measurements) -> list[Statement]:
    """Theorem 4.1 (ii): the same Q bounds lambda_max, the largest Gauss-Newton eigenvalue."""
    clean = curvature_bound("4.1 (ii)", measured, measured.log_q("Q_D"), "Q_D")
    return [clean, *robust_sides(measured, curvature_bound, "4.1 (ii)")]


def theorem_42(measured: Measurements) -> list[Statement]:
    """Theorem 4.2 (i)-(v), which needs every margin to be positive."""
    return [
        *separated_calibration(measured),
        *separated_curvature(measured),
        *separated_robust(measured),
        bins_do_not_matter(measured),
    ]


def separated_calibration(measured: Measurements) -> list[Statement]:
    """Theorem 4.2 (i): Q bounds ECE from both sides, and falls with the smallest margin gamma."""
    k = measured.classes
    log_q = measured.log_q("Q_D")
    problem = measured.separation
    rounding = measured.clean.rounding

    lower = judge(
        "4.2 (i) lower",
        "Q_D / K <= ECE",
        exp(log_q) / k,
        measured.ece,
        rounding=rounding,
        base=UNDERFLOW,
        applies=not problem,
        reason=problem,
    )
    upper = ece_bound("4.2 (i) upper", measured, log_q, "Q_D", problem=problem)
    gamma = judge(
        "4.2 (i) gamma",
        "(K-1) Q_D <= (K-1) exp(-gamma)",
        min((k - 1) * exp(log_q), 1.0),
        (k - 1) * exp(-float(measured.margins.amin())),
        rounding=rounding,
        cap=1.0,
        applies=not problem,
        reason=problem,
    )
    return [lower, upper, gamma]


def separated_curvature(measured: Measurements) -> list[Statement]:
    """Theorem 4.2 (ii) and (iii); a bound of lambda_max beyond C_J^2 / 2 is clamped there."""
    k = measured.classes
    ece = measured.ece
    log_q = measured.log_q("Q_D")
    problem = measured.separation
    unmeasured = measured.curvature.problem
    scale = 2 * measured.c_j**2
    cap = measured.c_j**2 / 2

    clean = curvature_bound("4.2 (ii)", measured, log_q, "Q_D", problem=problem)
    by_ece = judge(
        "4.2 (ii) ECE",
        "2 C_J^2 (K-1) Q_D <= 2 C_J^2 K (K-1) ECE",
        min(scale * ((k - 1) * exp(log_q)), cap),
        scale * (k * (k - 1)) * ece,
        rounding=measured.clean.rounding,
        cap=cap,
        applies=not problem,
        reason=problem or (unmeasured if math.isnan(measured.c_j) else ""),
    )
    sharpness = judge(
        "4.2 (iii)",
        "lambda_max / (2 C_J^2 K (K-1)) <= ECE",
        measured.curvature.sharpness / (scale * (k * (k - 1))),
        ece,
        rounding=curvature_rounding(measured),
        base=UNDERFLOW,
        applies=not (problem or unmeasured),
        reason=problem or unmeasured,
    )
    return [clean, by_ece, sharpness]


def separated_robust(measured: Measurements) -> list[Statement]:
    """Theorem 4.2 (iv): attacked margins with a certified L_m below, certified ones above."""
    problem = measured.separation or ("" if measured.certified else measured.missing)
    left_problem = problem or side_problem(measured.attacked, "left")
    rounding = measured.rounding
    log_q = measured.log_q("Q_eps certified")
    symbol = "Q_eps [certified]"

    lower = judge(
        "4.2 (iv) lower",
        "Q- [attacked, certified L_m] / K <= ECE",
        exp(measured.log_q("Q-")) / measured.classes,
        measured.ece,
        rounding=rounding,
        base=UNDERFLOW,
        applies=not left_problem,
        reason=left_problem,
    )
    upper = ece_bound("4.2 (iv) upper", measured, log_q, symbol, rounding=rounding, problem=problem)
    curvature = curvature_bound("4.2 (iv) curvature", measured, log_q, symbol, problem=problem)
    return [lower, upper, curvature]


def bins_do_not_matter(measured: Measurements) -> Statement:
    """Theorem 4.2 (v): two equal numbers, checked as the larger against the smaller."""
    ece, _, misconfidence = measured.clean.sums()
    problem = measured.separation
    return judge(
        "4.2 (v)",
        "ECE = mean(1 - p_y), whatever the bins (larger <= smaller)",
        max(ece, misconfidence),
        min(ece, misconfidence),
        rounding=measured.clean.rounding,
        applies=not problem,
        reason=problem,
    )


def remark_b6(measured: Measurements) -> list[Statement]:
    """Remark B.6, without labels: for the logits and for the Gauss-Newton matrix."""
    log_q = measured.log_q("Q_predicted")
    return [
        measured.clean.statement("B.6"),
        curvature_bound("B.6 GN", measured, log_q, "Q_predicted"),
    ]


def proposition_b7(measured: Measurements) -> list[Statement]:
    """Proposition B.7: the moment that an attack reaches is at most the certified one."""
    statement = judge(
        "B.7",
        "log Q_eps [attacked] <= log Q_eps [certified]",
        measured.log_q("Q_eps attacked"),
        measured.log_q("Q_eps certified"),
        rounding=0.0,
        floor=measured.clean.rounding + measured.float64_error,
        reason="" if measured.certified else measured.missing,
    )
    return [statement]


def corollary_b8(measured: Measurements) -> list[Statement]:
    """Theorem 4.1 (i) on the test set, and Corollary B.8 from the training side."""
    if measured.test is None:
        return []
    test, shift = measured.test
    ece = test.sums()[0]
    log_others = math.log(measured.classes - 1)

    own = judge(
        "4.1 (i) test",
        "test ECE <= (K-1) Q_D of the test set",
        ece,
        exp(test.true.compute() + log_others),
        rounding=test.rounding,
        cap=1.0,
    )
    problem = measured.right_problem("certified")
    transferred = judge(
        "B.8",
        "test ECE <= (K-1) Q_eps [certified] of the training set",
        ece,
        exp(measured.log_q("Q_eps certified") + log_others),
        rounding=test.rounding + measured.rounding,
        cap=1.0,
        reason="; ".join(part for part in (problem, shift.reason) if part),
        applies=shift.holds and not problem,
    )
    return [own, transferred]
