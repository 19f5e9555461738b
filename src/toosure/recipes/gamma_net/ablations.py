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
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import spread_text
from toosure.runs import Run

HEADER = ("seeds", "accuracy %", *ERRORS, "gamma at the end")


def bandwidth_findings(setting: Setting, store: RunStore) -> Findings:
    """Return what the kernel's width does to calibration."""
    runs = {}
    for bandwidth in sweeps.bandwidth_values(setting):
        present = store.runs(sweeps.bandwidth_configs(setting, bandwidth))
        if present:
            runs[bandwidth] = present
    scores = {bandwidth: final_scores(of) for bandwidth, of in runs.items()}
    table = Table("Bandwidth of SECE", ("bandwidth", *HEADER), table_rows(runs, scores), NOTE)

    errors = [mean(of, "ece") for of in scores.values() if of]
    text = "not run"
    if errors:
        text = f"ECE {100 * min(errors):.2f} to {100 * max(errors):.2f} points"
    claim = Claim(
        f"ECE over {len(errors)} bandwidths, .001 to 1",
        text,
        "not reported",
        None,
        "reported only: the paper uses .01 and asks the question",
    )
    return Findings([claim], [table], unrounded(scores))


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
