"""The claims of the CSAM paper, and the rules that judge them here."""

import math
from collections.abc import Mapping
from itertools import pairwise

from toosure.recipes.benchmark.paired import Difference, PairedScores
from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, missing_in, why_not_judged
from toosure.recipes.csam.rows import GAMMAS, RADII
from toosure.recipes.recipe import (
    Claim,
    Setting,
    claim_without_runs,
    claims_without_runs,
    judge,
    missing_runs,
    single_run,
)

MARGIN = 0.3  # points of accuracy: the largest loss that is not inferior
LOWER_RULE = "ours: below 0 at each seed, and the 95 % interval over test images below 0"
MARGIN_RULE = f"ours: the 95 % interval over test images lies above -{MARGIN} points"
SHARPEST_FIRST = ("SGD", "LS", "FL", "SAM", "CSAM")  # Table S16
GRID_RUNS = len(RADII) * len(GAMMAS)  # of one seed
GRID_IN_THE_PAPER = {  # of the columns of Table S4 that we have
    "cifar10": "yes: gamma 1.5 at rho .05, .5 at .1",
    "cifar100": "yes (text); gamma 1.5 at both by Table S4",
}


# -- SGD, SAM, CSAM -------------------------------------------------------------------------------


def order_claims(setting: Setting, where: str, rows: Rows, scores: PairedScores) -> list[Claim]:
    """Judge whether ECE falls from SGD to SAM to CSAM, at an accuracy that is not inferior."""
    claims = []
    for reference, better in (("SAM", "CSAM"), ("SGD", "SAM")):
        lower = f"{where}: {better}'s ECE is below {reference}'s"
        accurate = f"{where}: {better}'s accuracy is not inferior to {reference}'s"
        result = scores.differences(rows[reference].records, rows[better].records)
        if result is None:
            claims += claims_without_runs(lower, accurate)
            continue

        errors = error_texts(rows[reference], rows[better])
        reasons = [
            "judged on the paper's data only" if setting.quick else "",
            missing_in([rows[reference], rows[better]]),
            single_run(result.seeds),
        ]
        claims.append(
            judge(
                lower,
                found=f"{errors}; paired {seed_text(result.ece)}",
                paper=paper_pair(rows[reference], rows[better]),
                holds=result.ece.below_zero,
                rule=LOWER_RULE,
                reasons=reasons,
            )
        )
        claims.append(
            judge(
                accurate,
                found=f"points: {seed_text(result.accuracy)}",
                paper="yes, mostly higher",
                holds=result.accuracy.low > -MARGIN,
                rule=MARGIN_RULE,
                reasons=reasons,
            )
        )
    return claims


def error_texts(reference: ScoredRow, better: ScoredRow) -> str:
    """Return three calibration errors of two methods: ECE, and two hardly inflated by chance."""
    names = {"ECE": "ece", "debiased": "debiased_ece", "smECE": "smece"}
    return ", ".join(
        f"{name} {100 * better.mean(key):.2f} : {100 * reference.mean(key):.2f}"
        for name, key in names.items()
    )


def paper_pair(reference: ScoredRow, better: ScoredRow) -> str:
    """Return the paper's ECE of two methods as text."""
    return f"{better.row.figures.get('ECE', '–')} : {reference.row.figures.get('ECE', '–')}"


def paper_number(scored: ScoredRow, column: str) -> float:
    """Return one of the paper's figures without its deviation."""
    return float(scored.row.figures[column].partition(" ")[0])


def seed_text(difference: Difference) -> str:
    """Return a difference as text, with its interval and the number of seeds."""
    return f"{difference.text()} (n = {len(difference.by_seed)})"


def temperature_claim(where: str, rows: Rows) -> Claim:
    """Report SAM's raw ECE beside SGD's after temperature scaling."""
    statement = f"{where}: SAM's raw ECE against SGD's after temperature scaling"
    sgd = rows["SGD"].records
    if not sgd or not rows["SAM"].records:
        return claim_without_runs(statement)

    papers = f"{rows['SAM'].row.figures['ECE']} : {rows['SGD'].row.figures['TCE']}"
    after = sum(record.test_after_temperature["ece"] for record in sgd) / len(sgd)
    return Claim(
        statement,
        f"{100 * rows['SAM'].mean('ece'):.2f} : {100 * after:.2f}",
        papers,
        None,
        "reported only: mostly below in Figure 3, but not in Table S11 (CIFAR-10)",
    )


# -- one method against all others ----------------------------------------------------------------


def lowest_error_claim(setting: Setting, where: str, rows: Rows) -> Claim:
    """Judge whether no other row has a lower mean ECE than CSAM."""
    statement = f"{where}: CSAM has the lowest ECE of all rows"
    present = {name: scored.mean("ece") for name, scored in rows.items() if scored.records}
    if "CSAM" not in present or len(present) < 2:
        return claim_without_runs(statement)

    ranking = sorted(present, key=lambda name: present[name])
    best = ", ".join(f"{name} {100 * present[name]:.2f}" for name in ranking[:4])
    return judge(
        statement,
        found=f"place {ranking.index('CSAM') + 1} of {len(ranking)}: {best}",
        paper="yes" if rows["CSAM"].row.figures else "not on these data",
        holds=ranking[0] == "CSAM",
        rule="ours: by the mean over seeds",
        reasons=why_not_judged(setting, rows.values()),
    )


# -- sharpness, grid ------------------------------------------------------------------------------


def sharpness_claims(setting: Setting, rows: Rows) -> list[Claim]:
    """Judge Table S16: SAM and CSAM are the flattest, and the whole order is the same."""
    flattest = "SAM and CSAM have a lower kappa_max than SGD, focal loss and label smoothing"
    order = "kappa_max falls in the order SGD, label smoothing, focal loss, SAM, CSAM"
    values = {name: mean_sharpness(rows[name]) for name in SHARPEST_FIRST}
    if any(math.isnan(value) for value in values.values()):
        return claims_without_runs(flattest, order)

    found = ", ".join(f"{name} {value:.1f}" for name, value in values.items())
    seeds = min(len(rows[name].records) for name in SHARPEST_FIRST)
    reasons = why_not_judged(setting, [rows[name] for name in SHARPEST_FIRST])
    rule = f"ours: by the mean, n = {seeds}; Hessian of cross-entropy on training images"

    plain = [values[name] for name in ("SGD", "LS", "FL")]
    numbers = [values[name] for name in SHARPEST_FIRST]
    falling = all(a > b for a, b in pairwise(numbers))
    return [
        judge(
            flattest,
            found=found,
            paper="178, 148 against 497 to 632",
            holds=max(values["SAM"], values["CSAM"]) < min(plain),
            rule=rule,
            reasons=reasons,
        ),
        judge(
            order,
            found=found,
            paper="632, 584, 497, 178, 148",
            holds=falling,
            rule=rule,
            reasons=reasons,
        ),
    ]


def mean_sharpness(scored: ScoredRow) -> float:
    """Return the mean kappa_max of a row's runs; NaN if it was not measured."""
    values = [record.sharpness for record in scored.records if record.sharpness is not None]
    return sum(values) / len(values) if values else math.nan


def grid_claim(
    setting: Setting, where: str, errors: Mapping[tuple[float, float], float], seeds: int = 1
) -> Claim:
    """Judge whether the gamma of least ECE is larger at the smaller rho (Table S4).

    `errors` holds the mean ECE over `seeds` runs by rho and gamma. The claim is not judged if both
    minima lie at the largest gamma: the grid then ends before the least ECE.
    """
    statement = f"{where}: a small rho wants a large gamma"
    if not errors:
        return claim_without_runs(statement)

    radii = sorted({rho for rho, _ in errors})
    gammas = sorted({gamma for _, gamma in errors})
    best = {
        rho: min(
            (gamma for gamma in gammas if (rho, gamma) in errors),
            key=lambda gamma: errors[rho, gamma],
        )
        for rho in radii
    }

    found = ", ".join(f"rho {rho:g}: least ECE at gamma {gamma:g}" for rho, gamma in best.items())
    at_the_edge = all(gamma == gammas[-1] for gamma in best.values())
    return judge(
        statement,
        found=found,
        paper=GRID_IN_THE_PAPER.get(where, "yes"),
        holds=best[radii[0]] > best[radii[-1]],
        rule=f"ours: the gamma of least ECE is larger at the smaller rho, n = {seeds}",
        reasons=[
            setting.why_not_judged_on_cifar,
            missing_runs(len(errors), GRID_RUNS),
            "both at the largest gamma tried" if at_the_edge else "",
        ],
    )


def tuned_claim(
    setting: Setting, where: str, errors: Mapping[tuple[float, float], float], seeds: int = 1
) -> Claim:
    """Judge whether CSAM with the best gamma has a lower ECE than SAM at each rho (Table S4)."""
    statement = f"{where}: with a tuned gamma CSAM has a lower ECE than SAM"
    radii = sorted({rho for rho, gamma in errors if gamma == 0})
    gammas = sorted({gamma for _, gamma in errors})
    if not radii or len(gammas) < 2:
        return claim_without_runs(statement)

    best = {
        rho: min((e for (r, gamma), e in errors.items() if r == rho and gamma), default=math.inf)
        for rho in radii
    }
    found = (f"rho {rho:g}: {100 * best[rho]:.2f} : {100 * errors[rho, 0]:.2f}" for rho in radii)
    return judge(
        statement,
        found=", ".join(found),
        paper="yes",
        holds=all(best[rho] < errors[rho, 0] for rho in radii),
        rule=f"ours: at each rho, by the mean, n = {seeds}; the best of several gammas",
        reasons=[
            setting.why_not_judged_on_cifar,
            missing_runs(len(errors), GRID_RUNS),
        ],
    )
