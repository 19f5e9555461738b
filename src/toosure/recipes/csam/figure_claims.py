"""What the paper reads from Figures 2, S4 and 3, and the rules that judge it here.

The rules were written before any of these runs was trained.
"""

from collections.abc import Mapping

import numpy as np

from toosure.recipes.csam.figure_data import SavedRows, Theory, column
from toosure.recipes.recipe import (
    Claim,
    Setting,
    claim_without_runs,
    claims_without_runs,
    judge,
)

MIN_R_SQUARED = 0.95  # of a straight line through kappa_min on the way to theta~
MIN_RATIO = 3.0  # of SGD's ECE to SAM's, where the paper says about six
BOUND = "{}: kappa_min at theta and at theta~ stays above -|g| / rho"
LINE = "{}: kappa_min falls along a line from theta to theta~"
LATE = "{}: the entropy penalty lambda is stronger late in training than early"
PROVED = "{}: lambda_0 <= lambda, and no lemma or theorem fails"


# -- Figures 2 and S4 -----------------------------------------------------------------------------


def theory_claims(
    figure: str, where: str, theory: Theory | None, shown_at: tuple[float, ...], reason: str
) -> list[Claim]:
    """Judge what the paper reads from kappa_min, lambda and lambda_0 along one run.

    `figure` is 2 or S4. `reason` is the reason not to judge, or an empty text.
    """
    sentences = [text.format(where) for text in (BOUND, LINE, LATE, PROVED)]
    if theory is None:
        return claims_without_runs(*sentences)

    reasons = [reason]
    if theory.unconverged:
        reasons.append(f"kappa_min did not converge in {theory.unconverged} rows")
    rows = len(theory.epochs)
    apply = int((theory.path.min(axis=1) >= theory.bound).sum())
    nothing_proved = "" if apply else "the assumption of the lemmas holds in no row"
    below = int((theory.lam0 <= theory.lam).sum())

    bound, line, late, proved = sentences
    return [
        bound_claim(bound, figure, theory, reasons),
        line_claim(line, figure, theory, shown_at, reasons),
        late_claim(late, figure, theory, reasons[:1]),
        judge(
            proved,
            found=f"{theory.failed:.0f} failures; their assumption holds in {apply} of {rows} "
            f"rows, lambda_0 <= lambda in {below}",
            paper="proved",
            holds=theory.failed == 0,  # Eq. 2, lambda_0 <= lambda, is one of the statements
            rule="at every row where they apply",
            reasons=[reason, nothing_proved],
        ),
    ]


def bound_claim(statement: str, figure: str, theory: Theory, reasons: list[str]) -> Claim:
    """Judge the assumption of Lemmas 1 and 2 at both ends of the path."""
    at_start = int((theory.path[:, 0] >= theory.bound).sum())
    at_end = int((theory.path[:, -1] >= theory.bound).sum())
    rows = len(theory.bound)
    return judge(
        statement,
        found=f"at theta in {at_start} of {rows} rows, at theta~ in {at_end}",
        paper=f"yes (Figure {figure} a)",
        holds=at_start == at_end == rows,
        rule="ours: in every row, one run",
        reasons=reasons,
    )


def line_claim(
    statement: str, figure: str, theory: Theory, shown_at: tuple[float, ...], reasons: list[str]
) -> Claim:
    """Judge whether kappa_min falls along a straight line in the rows that the paper shows."""
    chosen = theory.path[theory.rows_at(shown_at)]
    fits = [r_squared(np.array(theory.shares), values) for values in chosen]
    falls = [bool((np.diff(values) < 0).all()) for values in chosen]
    return judge(
        statement,
        found=f"R^2 {', '.join(f'{fit:.2f}' for fit in fits)}; falls in {sum(falls)} of "
        f"{len(falls)}",
        paper=f"yes (Figure {figure} b)",
        holds=all(falls) and min(fits) >= MIN_R_SQUARED,
        rule=f"ours: falls from point to point, R^2 of a line at least {MIN_R_SQUARED}",
        reasons=reasons,
    )


def late_claim(statement: str, figure: str, theory: Theory, reasons: list[str]) -> Claim:
    """Judge whether lambda is larger in the last quarter of the rows than in the first."""
    quarter = max(1, len(theory.lam) // 4)
    early = float(np.nanmean(theory.lam[:quarter]))
    late = float(np.nanmean(theory.lam[-quarter:]))
    return judge(
        statement,
        found=f"{early:.3g} early, {late:.3g} late",
        paper=f"yes (Figure {figure} c)",
        holds=late > early,
        rule=f"ours: mean of the last {quarter} rows above that of the first {quarter}",
        reasons=reasons,
    )


def r_squared(x: np.ndarray, y: np.ndarray) -> float:
    """Return the share of the variance of `y` that a straight line explains.

    >>> round(r_squared(np.arange(3.0), np.array([1.0, 3.0, 5.0])), 6)
    1.0
    """
    if np.ptp(y) == 0:
        return 1.0
    return float(np.corrcoef(x, y)[0, 1] ** 2)


# -- Figure 3 -------------------------------------------------------------------------------------


def ratio_claim(
    setting: Setting, data: str, network: str, errors: Mapping[str, Mapping[str, float]] | None
) -> Claim:
    """Judge whether SGD's raw ECE is several times SAM's."""
    statement = f"{data}, {network}: SGD's ECE is several times SAM's"
    if errors is None:
        return claim_without_runs(statement)
    ratio = errors["SGD"]["raw"] / errors["SAM"]["raw"]
    return judge(
        statement,
        found=f"{errors['SGD']['raw']:.2f} : {errors['SAM']['raw']:.2f}, {ratio:.1f} times",
        paper="about 6 (Figure 3); 1.9 and 8.3 by Tables S11, S12",
        holds=ratio >= MIN_RATIO,
        rule=f"ours: at least {MIN_RATIO:g} times, n = 1",
        reasons=[setting.why_not_judged_on_cifar],
    )


def calibrated_claim(data: str, network: str, errors: Mapping[str, Mapping[str, float]]) -> Claim:
    """Report SAM's raw ECE beside SGD's after each calibrator."""
    after = {name: error for name, error in errors["SGD"].items() if name != "raw"}
    texts = ", ".join(f"{name} {error:.2f}" for name, error in after.items())
    below = sum(errors["SAM"]["raw"] < error for error in after.values())
    return Claim(
        f"{data}, {network}: SAM's raw ECE against SGD's after calibration",
        f"{errors['SAM']['raw']:.2f} : {texts}; below {below} of {len(after)}",
        "mostly below (Figure 3); not in Table S11",
        None,
        "reported only",
    )


def persistent_claim(setting: Setting, data: str, rows: Mapping[str, SavedRows]) -> Claim:
    """Judge whether SAM's validation ECE is below SGD's in every row."""
    statement = f"{data}, ResNet-56: SAM's ECE is below SGD's through all of training"
    if len(rows) < 2:
        return claim_without_runs(statement)
    sgd, sam = (column(rows[name], "val/ece")[1:] for name in ("SGD", "SAM"))
    if len(sgd) != len(sam):
        return Claim(statement, "–", note="the two runs were measured at different steps")

    below = int((sam < sgd).sum())
    return judge(
        statement,
        found=f"in {below} of {len(sgd)} rows; at the end {100 * sam[-1]:.2f} : "
        f"{100 * sgd[-1]:.2f}",
        paper="yes (Figure 3 c, d)",
        holds=below == len(sgd),
        rule="ours: at every row after the start, one seed",
        reasons=[setting.why_not_judged_on_cifar],
    )
