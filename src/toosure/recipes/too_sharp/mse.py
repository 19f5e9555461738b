"""Squared error (App. D): under-confident by construction, and sharpness does not decay."""

import numpy as np

from toosure.data.catalogue import SOURCES
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
from toosure.recipes.series import correlate, mean_std_text
from toosure.recipes.too_sharp import paper, sweeps
from toosure.runs import Run

NEAR = 0.2  # of the limit
SENTENCES = (
    "severely under-confident on the training set",
    "confidence goes to e / (e + K - 1)",
    "training ECE stays large",
    "sharpness does not decay",
)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the end of each run, and the claims of App. D on it."""
    configs = sweeps.squared_error(setting)
    groups = {name: store.runs(own) for name, own in configs.items()}
    limit = paper.mse_confidence(10 if setting.quick else SOURCES[setting.data].classes)

    header = (
        "",
        "word",
        "train accuracy",
        "train confidence",
        "train ECE",
        "test ECE",
        "end / largest sharpness",
        "r of train ECE and sharpness",
    )
    rows = tuple(row(name, run) for name, runs in groups.items() for run in runs)
    note = (
        f"At the end of {configs['GD'][0].steps:,} steps. The optimum of squared error gives the "
        f"true class e / (e + K - 1) = {limit:.3f} of the softmax, whatever the accuracy."
    )
    table = Table("Mean squared error", header, rows, note)

    claims = []
    for name, runs in groups.items():
        claims += claims_of(name, runs, limit, expected=len(configs[name]))
    last_rows = {name: [run.last for run in runs] for name, runs in groups.items()}
    return Findings(claims, [table], last_rows)


def row(name: str, run: Run) -> tuple[str, ...]:
    """Return the last row of a run as cells, and the correlation of its ECE and sharpness."""
    columns = run.columns
    r = correlate(columns["train/ece"], columns["train/gn_sharpness"], columns["train/loss"])
    return (
        name,
        run.config["optimizer"],
        f"{run.last['train/accuracy']:.3f}",
        f"{run.last['train/confidence']:.3f}",
        f"{run.last['train/ece']:.3f}",
        f"{run.last['val/ece']:.3f}",
        f"{last_sharpness_share(run):.2f}",
        f"{r.pearson:.2f}",
    )


def last_sharpness_share(run: Run) -> float:
    """Return the last sharpness as a share of the largest."""
    sharpness = run.columns["train/gn_sharpness"]
    return float(sharpness[-1] / np.nanmax(sharpness))


def claims_of(name: str, runs: list[Run], limit: float, expected: int) -> list[Claim]:
    """Judge every run: confidence far below accuracy and near its limit, sharpness that stays.

    These follow from the loss itself, so they are judged on any data.
    """
    statements = [f"MSE, {name}: {sentence}" for sentence in SENTENCES]
    if not runs:
        return claims_without_runs(*statements)
    under_confident, at_its_limit, large_error, no_decay = statements

    gaps = [run.last["train/confidence"] - run.last["train/accuracy"] for run in runs]
    confidences = [run.last["train/confidence"] for run in runs]
    errors = [run.last["train/ece"] for run in runs]
    shares = [last_sharpness_share(run) for run in runs]

    n = f"n = {len(runs)} rates"
    reasons = [missing_runs(len(runs), expected)]
    return [
        judge(
            under_confident,
            found=f"confidence minus accuracy {mean_std_text(gaps)} ({n})",
            paper="severely",
            holds=all(gap < -0.2 for gap in gaps),
            rule="ours: every run below -.2",
            reasons=reasons,
        ),
        judge(
            at_its_limit,
            found=f"{mean_std_text(confidences, '.3f')} ({n})",
            paper=f"{limit:.3f}",
            holds=all(abs(confidence / limit - 1) < NEAR for confidence in confidences),
            rule=f"ours: every run within {NEAR:.0%} of it",
            reasons=reasons,
        ),
        judge(
            large_error,
            found=f"{mean_std_text(errors, '.3f')} ({n})",
            paper="large",
            holds=all(error > 0.2 for error in errors),
            rule="ours: every run above .2",
            reasons=reasons,
        ),
        judge(
            no_decay,
            found=f"end is {mean_std_text(shares)} of the largest ({n})",
            paper="does not attenuate",
            holds=all(share > 0.5 for share in shares),
            rule="ours: every run ends above half of its largest",
            reasons=reasons,
        ),
    ]
