"""Claims on gamma-net that several tables share, each with one rule.

The table gives the statement of the claim, and the reasons not to judge it.
"""

from collections.abc import Sequence

from toosure.recipes.benchmark.scored_rows import ScoredRow
from toosure.recipes.gamma_net.rows import ERRORS
from toosure.recipes.recipe import Claim, claim_without_runs, judge
from toosure.recipes.series import mean_std_text

OVERCONFIDENT = 2.0  # points of confidence above accuracy from which CE must be beaten
SPREAD = 1.0  # points of ECE between the smallest and the largest seed
ACCURACY = 0.01  # the largest loss of accuracy


def count_text(*rows: ScoredRow) -> str:
    """Return how many runs each row has, as text: "(n = 3 : 1)"."""
    return f"(n = {' : '.join(str(len(row.records)) for row in rows)})"


def pair_text(ours: ScoredRow, other: ScoredRow, key: str) -> str:
    """Return a score of two methods as text, in points and with n."""
    texts = (mean_std_text(row.points(key)) for row in (ours, other))
    return f"{' : '.join(texts)} {count_text(ours, other)}"


def lower_ece_claim(
    statement: str,
    ours: ScoredRow,
    other: ScoredRow,
    reasons: Sequence[str],
    *,
    found: str = "",
    paper: str = "not reported",
    rule: str = "",
) -> Claim:
    """Judge whether the mean ECE over seeds is below that of another method."""
    if not ours.records or not other.records:
        return claim_without_runs(statement)
    return judge(
        statement,
        found=found or pair_text(ours, other, "ece"),
        paper=paper,
        holds=ours.mean("ece") < other.mean("ece"),
        rule=rule,
        reasons=reasons,
    )


def all_errors_claim(
    statement: str, ours: ScoredRow, other: ScoredRow, reasons: Sequence[str], rule: str = ""
) -> Claim:
    """Judge whether every error that the paper names is below that of another method."""
    if not ours.records or not other.records:
        return claim_without_runs(statement)

    pairs = {name: (ours.mean(key), other.mean(key)) for name, key in ERRORS.items()}
    text = ", ".join(f"{name} {100 * a:.2f} : {100 * b:.2f}" for name, (a, b) in pairs.items())
    return judge(
        statement,
        found=f"{text} {count_text(ours, other)}",
        paper="all lower",
        holds=all(a < b for a, b in pairs.values()),
        rule=rule,
        reasons=reasons,
    )


def lower_than_ce(
    ours: ScoredRow,
    ce: ScoredRow,
    excess: float,
    reasons: Sequence[str],
    *,
    where: str = "",
    found: str = "",
    rule: str,
) -> Claim:
    """Judge whether ECE is below cross-entropy's, if that is over-confident by more than 2 points.

    `excess` is the over-confidence of cross-entropy in points.
    """
    return lower_ece_claim(
        f"{where}{ours.name} has less ECE than cross-entropy where that is over-confident",
        ours,
        ce,
        [*reasons, too_little_overconfident(excess)],
        found=found,
        paper="lower",
        rule=rule,
    )


def accurate_as_ce(
    ours: ScoredRow, ce: ScoredRow, found: str, reasons: Sequence[str], *, where: str = ""
) -> Claim:
    """Judge whether accuracy is at most a point below that of cross-entropy."""
    statement = f"{where}{ours.name}: ... at an accuracy within one point of cross-entropy's"
    if not ours.records or not ce.records:
        return claim_without_runs(statement)
    return accuracy_claim(statement, found, ours.mean("accuracy"), ce.mean("accuracy"), reasons)


def accuracy_claim(
    statement: str, found: str, own: float, other: float, reasons: Sequence[str]
) -> Claim:
    """Judge whether accuracy is at most a point below that of another method."""
    return judge(
        statement,
        found=found,
        paper="competitive",
        holds=own > other - ACCURACY,
        rule="ours: within a point",
        reasons=reasons,
    )


def spread_claim(
    statement: str, row: ScoredRow, reasons: Sequence[str], *, steady: bool = True
) -> Claim:
    """Judge whether final ECE differs by less than a point over seeds; or not, if not `steady`."""
    if not row.records:
        return claim_without_runs(statement)

    errors = row.points("ece")
    spread = max(errors) - min(errors)
    listed = ", ".join(f"{error:.2f}" for error in errors)
    return judge(
        statement,
        found=f"spread {spread:.2f} points ({listed}; n = {len(errors)})",
        paper="not reported",
        holds=spread < SPREAD if steady else spread >= SPREAD,
        rule="ours: largest minus smallest",
        reasons=reasons,
    )


def too_little_overconfident(excess: float) -> str:
    """Return the reason not to judge if CE is over-confident by too few points, else nothing."""
    return "" if excess > OVERCONFIDENT else f"CE is over-confident by {excess:.1f} points only"
