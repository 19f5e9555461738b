"""gamma-net with SECE against CE, focal and FLSD-53: calibration, accuracy, parameters."""

import numpy as np

from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.parameters import parameter_count
from toosure.recipes.prediction_scores import Scores, scores_of_runs
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

ERRORS = {
    "ECE": "ece",
    "MCE": "mce",
    "AdaECE": "adaptive_ece",
    "classwise ECE": "classwise_ece",
}
NOTE = (
    "Test split at the end of training, 15 bins, errors in points, mean ± standard deviation over "
    "seeds. ResNet-20, crops and flips, SGD 0.1 with momentum .9 and weight decay "
    "5e-4, batch 128, 10,000 steps, the rate cut by 10 at half and three quarters. gamma-net cuts "
    "its meta split, a tenth, from its own training images."
)
ACCURATE = "... at competitive accuracy"


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the main table and whether gamma-net is better calibrated than each baseline."""
    runs = {name: store.runs(sweeps.method_configs(setting, name)) for name in sweeps.METHODS}
    scores = {name: final_scores(of) for name, of in runs.items()}

    header = ("method", "seeds", "accuracy %", *ERRORS, "parameters")
    rows = tuple(row(name, setting, scores) for name in scores if scores[name])
    title = f"gamma-net, ResNet-20, {sweeps.single_data(setting, 'cifar10')}"
    table = Table(title, header, rows, NOTE)
    values = {name: [each._asdict() for each in of] for name, of in scores.items()}
    return Findings(claims(setting, scores), [table], values)


def final_scores(runs: list[Run]) -> list[Scores]:
    """Return the test scores at the end of training, which is what the field reports."""
    return scores_of_runs(runs, "predictions.npz")


def mean(scores: list[Scores], field: str) -> float:
    return float(np.mean([getattr(each, field) for each in scores]))


def missing_methods(setting: Setting, scores: dict[str, list[Scores]], *names: str) -> str:
    """Say how many of these methods' runs are missing."""
    present = sum(len(scores[name]) for name in names)
    return missing_runs(present, len(sweeps.comparison_seeds(setting)) * len(names))


# -- claims ---------------------------------------------------------------------------------


def claims(setting: Setting, scores: dict[str, list[Scores]]) -> list[Claim]:
    """Judge: each calibration error below each baseline's, accuracy within a point."""
    calibrated = [calibration_claim(setting, scores, name) for name in sweeps.BASELINES]
    return [*calibrated, accuracy_claim(setting, scores)]


def calibration_claim(setting: Setting, scores: dict[str, list[Scores]], baseline: str) -> Claim:
    """Judge: every calibration error of gamma-net is below the baseline's."""
    says = f"gamma-net + SECE is better calibrated than {baseline}"
    ours = scores[sweeps.OURS]
    theirs = scores[baseline]
    if not ours or not theirs:
        return claims_without_runs(says)[0]

    pairs = {name: (mean(ours, field), mean(theirs, field)) for name, field in ERRORS.items()}
    text = ", ".join(f"{name} {100 * a:.2f} : {100 * b:.2f}" for name, (a, b) in pairs.items())
    return judge(
        says,
        found=f"{text} (n = {len(ours)} : {len(theirs)})",
        paper="all lower",
        holds=all(a < b for a, b in pairs.values()),
        unless=[
            why_not_judged(setting),
            missing_methods(setting, scores, sweeps.OURS, baseline),
        ],
    )


def accuracy_claim(setting: Setting, scores: dict[str, list[Scores]]) -> Claim:
    """Judge: gamma-net is at most a point less accurate than the best baseline."""
    ours = scores[sweeps.OURS]
    baselines = [scores[name] for name in sweeps.BASELINES if scores[name]]
    if not ours or not baselines:
        return claims_without_runs(ACCURATE)[0]

    own = mean(ours, "accuracy")
    best = max(mean(baseline, "accuracy") for baseline in baselines)
    return judge(
        ACCURATE,
        found=f"{100 * own:.1f} %, best baseline {100 * best:.1f} %",
        paper="competitive",
        holds=own > best - 0.01,
        rule="ours: within a point",
        unless=[
            why_not_judged(setting),
            missing_methods(setting, scores, sweeps.OURS, *sweeps.BASELINES),
        ],
    )


def why_not_judged(setting: Setting) -> str:
    """Why nothing is judged; empty for a full run on data of the paper."""
    judged = not setting.quick and set(setting.data_sets) <= {"cifar10", "cifar100"}
    return "" if judged else "judged on CIFAR-10 and CIFAR-100 only"


# -- table ----------------------------------------------------------------------------------


def row(name: str, setting: Setting, scores: dict[str, list[Scores]]) -> tuple[str, ...]:
    """Print one method."""
    size = parameter_count(sweeps.method_configs(setting, name)[0])
    return (name, str(len(scores[name])), *score_cells(scores[name]), f"{size:,}")


def score_cells(scores: list[Scores]) -> tuple[str, ...]:
    """Print accuracy and the four calibration errors, in per cent."""
    accuracy = spread_text([100 * each.accuracy for each in scores], ".1f")
    errors = (
        spread_text([100 * getattr(each, field) for each in scores], ".2f")
        for field in ERRORS.values()
    )
    return accuracy, *errors
