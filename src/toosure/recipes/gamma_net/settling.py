"""The settling experiment: which change keeps gamma, and with it ECE, from differing by seed.

The rules below were written before the runs. Spread is the largest minus the smallest of five.
"""

import numpy as np

from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.comparison import (
    ERRORS,
    final_scores,
    mean,
    score_cells,
    why_not_judged,
)
from toosure.recipes.prediction_scores import Scores
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claims_without_runs,
    judge,
    missing_runs,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import spread_text
from toosure.runs import Run

OURS = "gamma-net (G)"
FIRST = "A: as first built"
STEADY = ("D: accuracy detached, virtual rate .1", "E: D, meta batch 512", OURS)
SPREAD = 1.0  # points of ECE
OVERCONFIDENT = 2.0  # points of confidence above accuracy from which CE must be beaten
FIRST_CUT = 0.5  # share of the steps after which the rate is cut
FROZEN = 0.1  # of gamma
NOTE = (
    "Test split at the end of training, 15 bins, errors in points, mean ± standard deviation over "
    "seeds; smallest to largest ECE beside it. Over-confidence is confidence minus accuracy on the "
    "validation split. Gamma is the mean of the last batch before the first cut of the rate and at "
    "the end; signal / noise is that of a meta-step, the median over rows."
)

Runs = dict[str, list[Run]]
AllScores = dict[str, list[Scores]]


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the arms with their spread over seeds, and whether the experiment settles it."""
    wanted = set(sweeps.arms(setting))
    runs = {
        name: store.runs(each for each in sweeps.arm_configs(setting, name) if each in wanted)
        for name in sweeps.ARMS
    }
    scores = {name: final_scores(of) for name, of in runs.items()}

    header = (
        *("arm", "seeds", "accuracy %", *ERRORS, "ECE from to", "over-confidence"),
        *("gamma at the first cut", "gamma at the end", "signal / noise"),
    )
    rows = tuple(arm_row(name, runs[name], scores[name]) for name in scores if scores[name])
    table = Table("Arms of the settling experiment", header, rows, NOTE)

    values: dict[str, object] = {
        name: [each._asdict() for each in of] for name, of in scores.items()
    }
    return Findings(claims(setting, runs, scores), [table], values)


# -- claims ---------------------------------------------------------------------------------


def claims(setting: Setting, runs: Runs, scores: AllScores) -> list[Claim]:
    """Judge: steady over seeds, the first build not, better than CE where that is too sure."""
    steady = [spread_claim(setting, scores, name) for name in STEADY]
    return [
        *steady,
        unsteady_claim(setting, scores),
        frozen_claim(setting, runs),
        better_claim(setting, runs, scores),
        accuracy_claim(setting, scores),
    ]


def spread(scores: list[Scores]) -> float:
    """Return the largest minus the smallest ECE over seeds, in points."""
    errors = [100 * each.ece for each in scores]
    return max(errors) - min(errors)


def reasons(setting: Setting, *present: int) -> list[str]:
    """Say why nothing is judged: small runs, other data, or runs that are missing."""
    expected = len(sweeps.ARM_SEEDS)
    missing = [missing_runs(count, expected) for count in present]
    return [why_not_judged(setting), *missing]


def spread_text_of(scores: list[Scores]) -> str:
    errors = ", ".join(f"{100 * each.ece:.2f}" for each in scores)
    return f"spread {spread(scores):.2f} points ({errors}; n = {len(scores)})"


def spread_claim(setting: Setting, scores: AllScores, name: str) -> Claim:
    """Judge: final ECE differs by less than a point over five seeds."""
    says = f"{name}: ECE differs by less than a point over five seeds"
    if not scores[name]:
        return claims_without_runs(says)[0]
    return judge(
        says,
        found=spread_text_of(scores[name]),
        paper="not reported",
        holds=spread(scores[name]) < SPREAD,
        rule="ours: largest minus smallest",
        unless=reasons(setting, len(scores[name])),
    )


def unsteady_claim(setting: Setting, scores: AllScores) -> Claim:
    """Judge the prediction that the first build is not steady, else nothing was explained."""
    says = "predicted: the first build (A) differs by a point or more"
    if not scores[FIRST]:
        return claims_without_runs(says)[0]
    return judge(
        says,
        found=spread_text_of(scores[FIRST]),
        paper="not reported",
        holds=spread(scores[FIRST]) >= SPREAD,
        rule="ours: largest minus smallest",
        unless=reasons(setting, len(scores[FIRST])),
    )


def frozen_claim(setting: Setting, runs: Runs) -> Claim:
    """Judge the prediction that the first build's gamma stays where the first cut finds it."""
    says = "predicted: after the first cut of the rate, gamma of A stays within .1"
    if not runs[FIRST]:
        return claims_without_runs(says)[0]
    moves = [abs(last_gamma(run) - gamma_at_first_cut(run)) for run in runs[FIRST]]
    return judge(
        says,
        found=", ".join(f"{move:.2f}" for move in moves) + f" (n = {len(moves)})",
        paper="not reported",
        holds=max(moves) < FROZEN,
        rule="ours: every seed",
        unless=reasons(setting, len(moves)),
    )


def better_claim(setting: Setting, runs: Runs, scores: AllScores) -> Claim:
    """Judge: less ECE than cross-entropy, wherever that is over-confident by 2 points or more."""
    says = "gamma-net + SECE has less ECE than cross-entropy where that is over-confident"
    if not scores[OURS] or not scores["CE"]:
        return claims_without_runs(says)[0]

    excess = float(np.mean([overconfidence(run) for run in runs["CE"]]))
    ours = [100 * each.ece for each in scores[OURS]]
    theirs = [100 * each.ece for each in scores["CE"]]
    too_sure = "" if excess > OVERCONFIDENT else f"CE is over-confident by {excess:.1f} points only"
    return judge(
        says,
        found=f"{spread_text(ours)} : {spread_text(theirs)} (n = {len(ours)} : {len(theirs)})",
        paper="lower",
        holds=bool(np.mean(ours) < np.mean(theirs)),
        rule="ours: judged where CE is over-confident by more than 2 points",
        unless=[*reasons(setting, len(ours), len(theirs)), too_sure],
    )


def accuracy_claim(setting: Setting, scores: AllScores) -> Claim:
    """Judge: at most a point less accurate than cross-entropy."""
    says = "... at an accuracy within one point of cross-entropy's"
    ours, theirs = scores[OURS], scores["CE"]
    if not ours or not theirs:
        return claims_without_runs(says)[0]
    own, other = 100 * mean(ours, "accuracy"), 100 * mean(theirs, "accuracy")
    return judge(
        says,
        found=f"{own:.2f} % : {other:.2f} % (n = {len(ours)} : {len(theirs)})",
        paper="competitive",
        holds=own > other - 1,
        rule="ours: within a point",
        unless=reasons(setting, len(ours), len(theirs)),
    )


# -- table ----------------------------------------------------------------------------------


def arm_row(name: str, runs: list[Run], scores: list[Scores]) -> tuple[str, ...]:
    """Print one arm."""
    errors = [100 * each.ece for each in scores]
    excess = spread_text([overconfidence(run) for run in runs])
    cells = (
        name,
        str(len(scores)),
        *score_cells(scores),
        f"{min(errors):.2f} to {max(errors):.2f}",
    )
    if name == "CE":
        return (*cells, excess, "–", "–", "–")

    return (
        *cells,
        excess,
        spread_text([gamma_at_first_cut(run) for run in runs]),
        spread_text([last_gamma(run) for run in runs]),
        spread_text([signal_to_noise(run) for run in runs]),
    )


def overconfidence(run: Run) -> float:
    """Return confidence minus accuracy on the validation split at the end, in points."""
    return 100 * (float(run.last["val/confidence"]) - float(run.last["val/accuracy"]))


def last_gamma(run: Run) -> float:
    return float(run.last["objective/gamma_mean"])


def gamma_at_first_cut(run: Run) -> float:
    """Return the mean gamma of the last row before the rate is first cut."""
    cut = FIRST_CUT * float(run.config["steps"])
    rows = [row for row in run.rows if row["step"] <= cut]
    return float(rows[-1]["objective/gamma_mean"])


def signal_to_noise(run: Run) -> float:
    """Return the median over rows of the signal-to-noise ratio of a meta-step."""
    ratios = [row["objective/meta_signal_to_noise"] for row in run.rows if row["step"] > 0]
    return float(np.median(ratios))
