"""Ablations of gamma-net: the bandwidth of SECE, and what its features contribute."""

import numpy as np

from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.comparison import (
    ERRORS,
    NOTE,
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
    single_run,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import spread_text
from toosure.runs import Run

NEAR = 0.01  # of ECE: how far above the best bandwidth the rule may lie
HEADER = ("seeds", "accuracy %", *ERRORS, "gamma at the end")


def bandwidth_findings(setting: Setting, store: RunStore) -> Findings:
    """Return what the kernel's width does to calibration."""
    runs = {}
    for bandwidth in sweeps.bandwidth_values(setting):
        present = store.runs(sweeps.bandwidth_configs(setting, bandwidth))
        if present:
            runs[bandwidth] = present
    scores = {bandwidth: final_scores(of) for bandwidth, of in runs.items()}
    title = f"Bandwidth of SECE, {sweeps.single_data(setting, 'cifar100')}"
    table = Table(title, ("bandwidth", *HEADER), table_rows(runs, scores), NOTE)
    claims = [fixed_claim(scores), rule_claim(setting, scores)]
    return Findings(claims, [table], unrounded(scores))


def fixed_claim(scores: dict[str, list[Scores]]) -> Claim:
    """Report how far ECE differs over the bandwidths that are held fixed."""
    errors = [mean(of, "ece") for name, of in scores.items() if of and name != "auto"]
    text = "not run"
    if errors:
        text = f"ECE {100 * min(errors):.2f} to {100 * max(errors):.2f} points"
    return Claim(
        f"ECE over {len(errors)} bandwidths, .001 to 1",
        text,
        "not reported",
        None,
        "reported only: the paper uses .01 and asks the question",
    )


def rule_claim(setting: Setting, scores: dict[str, list[Scores]]) -> Claim:
    """Judge the prediction that the bandwidth of the batch is near the best of the fixed ones."""
    says = "predicted: the bandwidth of the batch (auto) is within a point of the best fixed one"
    fixed = {name: mean(of, "ece") for name, of in scores.items() if of and name != "auto"}
    if not fixed or not scores.get("auto"):
        return claims_without_runs(says)[0]

    own = mean(scores["auto"], "ece")
    best = min(fixed, key=lambda name: fixed[name])
    counts = [len(of) for of in scores.values() if of]
    expected = len(sweeps.bandwidth_values(setting)) * len(sweeps.bandwidth_seeds(setting))
    return judge(
        says,
        found=f"{100 * own:.2f} : {100 * fixed[best]:.2f} at {best} (n = {min(counts)})",
        paper="an open question",
        holds=own < fixed[best] + NEAR,
        rule="ours: mean ECE, at most a point above",
        unless=[why_not_judged(setting), missing_runs(sum(counts), expected), single_run(*counts)],
    )


def feature_findings(setting: Setting, store: RunStore) -> Findings:
    """Return how gamma-net does when its features are replaced."""
    runs = {kind: store.runs(sweeps.feature_configs(setting, kind)) for kind in sweeps.FEATURES}
    scores = {kind: final_scores(of) for kind, of in runs.items()}
    table = Table("What gamma-net reads", ("features", *HEADER), table_rows(runs, scores), NOTE)
    return Findings(feature_claims(setting, scores), [table], unrounded(scores))


def feature_claims(setting: Setting, scores: dict[str, list[Scores]]) -> list[Claim]:
    """Judge: the network's own features leave it better calibrated than noise does."""
    says = "gamma-net needs its features: ECE lower than with noise in their place"
    own = [100 * each.ece for each in scores["penultimate"]]
    noise = [100 * each.ece for each in scores["noise"]]
    if not own or not noise:
        return claims_without_runs(says)

    n = f"(n = {len(own)} : {len(noise)})"
    expected = 2 * len(sweeps.comparison_seeds(setting))
    claim = judge(
        says,
        found=f"{spread_text(own)} : {spread_text(noise)} points {n}",
        paper="not reported",
        holds=bool(np.mean(own) < np.mean(noise)),
        unless=[why_not_judged(setting), missing_runs(len(own) + len(noise), expected)],
    )
    return [claim]


def table_rows(
    runs: dict[str, list[Run]], scores: dict[str, list[Scores]]
) -> tuple[tuple[str, ...], ...]:
    """Print one row per variant that has scores."""
    return tuple(
        (name, str(len(of)), *score_cells(of), gamma_text(runs[name]))
        for name, of in scores.items()
        if of
    )


def gamma_text(runs: list[Run]) -> str:
    """Print the mean gamma of the last batch, and how often it collapsed."""
    last = spread_text([run.last["objective/gamma_mean"] for run in runs])
    collapsed = sum(bool(run.last["objective/gamma_collapsed"]) for run in runs)
    return f"{last}, collapsed in {collapsed} of {len(runs)}" if collapsed else last


def unrounded(scores: dict[str, list[Scores]]) -> dict[str, object]:
    """Return all scores as plain dictionaries, for the JSON file."""
    return {name: [each._asdict() for each in of] for name, of in scores.items()}
