"""Claims on gamma-net by the common protocol. The rules were written before the runs, except one.

`level_claim` was added when five runs of gamma-net at one rate had shown classes that are off by 2
to 9 points, and before any run with a fast level. Its rule: the fast level becomes the default of
gamma-net if the claim holds on both data sets. It held. The other claims were written for gamma-net
at one rate. They were applied to the new default by the same rules when its scores were known, and
both are judged.
"""

from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, why_not_judged
from toosure.recipes.gamma_net.claims import (
    accurate_as_ce,
    all_errors_claim,
    count_text,
    lower_ece_claim,
    lower_than_ce,
    pair_text,
    spread_claim,
)
from toosure.recipes.gamma_net.rows import ALONE, ONE_RATE, OURS
from toosure.recipes.recipe import (
    Claim,
    Setting,
    claim_without_runs,
    judge,
)
from toosure.recipes.series import mean_and_std

MEANS = "ours: means over seeds"
ERRORS_RULE = f"{MEANS} of ECE, MCE, AdaECE and classwise ECE"
ECE_MARGIN = 0.003  # by which a fast level may raise ECE, if classes differ less
VALIDATED = {"class_gap_spread": "class gaps", "ece": "ECE"}
TRIVIAL = "predicted: SECE alone has less ECE than CE, at less than half of its accuracy"


def claims(setting: Setting, data: str, rows: Rows) -> list[Claim]:
    """Judge one data set: gamma-net, gamma-net at one rate, SECE alone, and the fast level."""
    return [
        *method_claims(setting, data, rows, OURS),
        *(method_claims(setting, data, rows, ONE_RATE) if ONE_RATE in rows else []),
        trivial_claim(setting, data, rows),
        *([level_claim(setting, data, rows)] if ONE_RATE in rows else []),
    ]


def method_claims(setting: Setting, data: str, rows: Rows, name: str) -> list[Claim]:
    """Judge gamma-net against CE, over seeds, against focal losses, and against ablations."""
    ours = rows[name]
    baselines = [rows[other] for other in ("CE", "focal", "FLSD-53") if other in rows]
    ablations = [rows[n] for n in rows if n.startswith(("gamma-net, not", "gamma fixed"))]
    steady = f"{data}: {ours.name}: ECE differs by less than a point over seeds"

    judged = [
        *ce_claims(setting, data, ours, rows["CE"]),
        spread_claim(steady, ours, why_not_compared(setting, ours)),
    ]

    for other in baselines:
        statement = f"{data}: {ours.name} is better calibrated than {other.name} by every error"
        reasons = why_not_compared(setting, ours, other)
        judged.append(all_errors_claim(statement, ours, other, reasons, ERRORS_RULE))
    for fixed in ablations:
        statement = f"{data}: {ours.name}: learning gamma helps: less ECE than {fixed.name}"
        reasons = why_not_compared(setting, ours, fixed)
        judged.append(lower_ece_claim(statement, ours, fixed, reasons, rule=MEANS))
    return judged


def ce_claims(setting: Setting, data: str, ours: ScoredRow, ce: ScoredRow) -> list[Claim]:
    """Judge whether gamma-net has less ECE than an over-confident CE, at its accuracy."""
    reasons = why_not_compared(setting, ours, ce)
    excess = mean_and_std(ce.overconfidence)[0]
    errors = f"{pair_text(ours, ce, 'ece')}; CE is over-confident by {excess:.1f} points"
    rule = "ours: means over seeds, judged where CE is over-confident by more than 2 points"
    accuracies = pair_text(ours, ce, "accuracy")
    return [
        lower_than_ce(ours, ce, excess, reasons, where=f"{data}: ", found=errors, rule=rule),
        accurate_as_ce(ours, ce, accuracies, reasons, where=f"{data}: "),
    ]


def why_not_compared(setting: Setting, *rows: ScoredRow) -> list[str]:
    """Return the reasons not to judge rows that each need several runs."""
    return why_not_judged(setting, rows, several=rows)


def trivial_claim(setting: Setting, data: str, rows: Rows) -> Claim:
    """Judge the prediction that SECE alone is calibrated and has learned nothing."""
    statement = f"{data}: {TRIVIAL}"
    alone = rows[ALONE]
    ce = rows["CE"]
    if not alone.records or not ce.records:
        return claim_without_runs(statement)

    errors = pair_text(alone, ce, "ece")
    accuracies = pair_text(alone, ce, "accuracy")
    lower = alone.mean("ece") < ce.mean("ece")
    return judge(
        statement,
        found=f"ECE {errors}; accuracy {accuracies}",
        paper="not reported",
        holds=lower and alone.mean("accuracy") < ce.mean("accuracy") / 2,
        rule=MEANS,
        reasons=why_not_compared(setting, alone, ce),
    )


def level_claim(setting: Setting, data: str, rows: Rows) -> Claim:
    """Judge whether a fast level makes classes differ less at about the same validation ECE."""
    statement = f"{data}: with a fast level over-confidence differs less between classes"
    fast = rows[OURS]
    slow = rows[ONE_RATE]
    if not fast.records or not slow.records:
        return claim_without_runs(statement)

    errors = {key: (fast.validation_mean(key), slow.validation_mean(key)) for key in VALIDATED}
    text = ", ".join(
        f"{name} {100 * errors[key][0]:.2f} : {100 * errors[key][1]:.2f}"
        for key, name in VALIDATED.items()
    )
    classes = errors["class_gap_spread"]
    pooled = errors["ece"]
    return judge(
        statement,
        found=f"validation {text} {count_text(fast, slow)}",
        paper="not reported",
        holds=classes[0] < classes[1] and pooled[0] <= pooled[1] + ECE_MARGIN,
        rule=f"{MEANS}, standard deviation of the class gaps lower and ECE at most .3 points "
        "higher",
        reasons=why_not_compared(setting, fast, slow),
    )
