"""Figure 1: ECE and sharpness rise, peak about together, and fall, under GD and SGD."""

import numpy as np

from toosure.config import RunConfig
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
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run

OPTIMIZERS = ("GD", "SGD")
KEYS = {"ECE": "train/ece", "sharpness": "train/gn_sharpness"}
HALF = 0.5  # of a peak: starts and ends lie below it, and each series at the other's peak above it
RISE_AND_FALL = "Figure 1: ECE and sharpness both rise and fall"
TOGETHER = "Figure 1: they peak around the same time"


def configs(setting: Setting) -> list[RunConfig]:
    """Return the GD and SGD runs of Table 1."""
    return [
        config
        for name in OPTIMIZERS
        for config in sweeps.rate_configs(setting, name, setting.first_seed)
    ]


def peak_step(run: Run, key: str) -> float:
    """Return the step at which a quantity was largest."""
    return float(run.columns["step"][np.nanargmax(run.columns[key])])


def first_share(run: Run, key: str) -> float:
    """Return the first value as a share of the largest."""
    values = run.columns[key]
    return float(values[0] / np.nanmax(values))


def last_share(run: Run, key: str) -> float:
    """Return the last value as a share of the largest."""
    values = run.columns[key]
    return float(values[-1] / np.nanmax(values))


def rises_and_falls(run: Run) -> bool:
    """Whether both quantities start and end below half of their peak."""
    return all(
        first_share(run, key) < HALF and last_share(run, key) < HALF for key in KEYS.values()
    )


def shares_at_the_others_peak(run: Run) -> tuple[float, float]:
    """Return ECE where sharpness peaks and sharpness where ECE does, as shares of their largest."""
    ece = run.columns["train/ece"]
    sharpness = run.columns["train/gn_sharpness"]
    ece_share = ece[np.nanargmax(sharpness)] / np.nanmax(ece)
    sharpness_share = sharpness[np.nanargmax(ece)] / np.nanmax(sharpness)
    return float(ece_share), float(sharpness_share)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return when each quantity peaked, and what was left of it at the end."""
    runs = store.runs(configs(setting))
    rows = tuple(
        (
            run.config["optimizer"],
            *(f"{peak_step(run, key):,.0f}" for key in KEYS.values()),
            *(f"{first_share(run, key):.2f}" for key in KEYS.values()),
            *(f"{last_share(run, key):.2f}" for key in KEYS.values()),
            *(f"{share:.2f}" for share in shares_at_the_others_peak(run)),
        )
        for run in runs
    )

    header = (
        "word",
        *(f"peak of {name}, step" for name in KEYS),
        *(f"{name}: start / peak" for name in KEYS),
        *(f"{name}: end / peak" for name in KEYS),
        "ECE at sharpness' peak / its own",
        "sharpness at ECE's peak / its own",
    )
    table = Table("Rise and fall", header, rows, "Training split.")
    return Findings(claims(setting, runs), [table])


def claims(setting: Setting, runs: list[Run]) -> list[Claim]:
    """Judge every run: both rise and fall by half; at the peak of one the other is above half."""
    if not runs:
        return claims_without_runs(RISE_AND_FALL, TOGETHER)

    both = [rises_and_falls(run) for run in runs]
    together = [min(shares_at_the_others_peak(run)) > HALF for run in runs]
    ece_peaks = [peak_step(run, "train/ece") for run in runs]
    sharpness_peaks = [peak_step(run, "train/gn_sharpness") for run in runs]
    apart = [abs(a - b) for a, b in zip(ece_peaks, sharpness_peaks, strict=True)]

    unless = [setting.why_not_judged, missing_runs(len(runs), len(configs(setting)))]
    return [
        judge(
            RISE_AND_FALL,
            found=f"{sum(both)} of {len(both)} runs",
            paper="every run",
            holds=all(both),
            rule="ours: start and end below half of the peak",
            unless=unless,
        ),
        judge(
            TOGETHER,
            found=f"{sum(together)} of {len(runs)} runs; "
            f"peaks {min(apart):,.0f} to {max(apart):,.0f} steps apart, "
            f"of ECE at {min(ece_peaks):,.0f} to {max(ece_peaks):,.0f}",
            paper="around the same time",
            holds=all(together),
            rule="ours: at the peak of one the other is above half of its own, in every run",
            unless=unless,
        ),
    ]
