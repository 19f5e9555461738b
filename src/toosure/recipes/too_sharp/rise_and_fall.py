"""Figure 1: ECE and sharpness rise and fall under GD and SGD, and peak together."""

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
from toosure.recipes.too_sharp.peak_lag import lag_table
from toosure.recipes.too_sharp.summaries import WINDOW, smooth
from toosure.runs import Run

OPTIMIZERS = ("GD", "SGD")
KEYS = {"ECE": "train/ece", "sharpness": "train/gn_sharpness"}
HALF = 0.5  # of a peak: starts and ends lie below it, values at the other's peak above it
RISE_AND_FALL = "Figure 1: ECE and sharpness both rise and fall"
TOGETHER = "Figure 1: they peak around the same time"


def configs(setting: Setting) -> list[RunConfig]:
    """Return the GD and SGD runs of Table 1."""
    return [
        config
        for name in OPTIMIZERS
        for config in sweeps.rate_configs(setting, name, setting.first_seed)
    ]


def window_steps(run: Run) -> int:
    """Return the width of the running mean in steps."""
    step = run.columns["step"]
    reach = round(WINDOW * len(step) / 2)
    return int(2 * reach * (step[-1] - step[0]) / max(1, len(step) - 1))


def smoothed_peak_step(run: Run, key: str) -> float:
    """Return the step of the largest smoothed value of a quantity."""
    return float(run.columns["step"][np.nanargmax(smooth(run.columns[key]))])


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
    """Return ECE at sharpness' peak and sharpness at ECE's, smoothed, as shares of the largest."""
    ece = smooth(run.columns["train/ece"])
    sharpness = smooth(run.columns["train/gn_sharpness"])
    ece_share = ece[np.nanargmax(sharpness)] / np.nanmax(ece)
    sharpness_share = sharpness[np.nanargmax(ece)] / np.nanmax(sharpness)
    return float(ece_share), float(sharpness_share)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return when each quantity peaks and how much of it is left at the end, and the claims."""
    runs = store.runs(configs(setting))
    rows = tuple(
        (
            run.config["optimizer"],
            *(f"{smoothed_peak_step(run, key):,.0f}" for key in KEYS.values()),
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
    table = Table("Rise and fall", header, rows, f"Training split. {smoothing_text(runs)}")
    return Findings(claims(setting, runs), [table, lag_table(runs)])


def smoothing_text(runs: list[Run]) -> str:
    """Return how peaks were smoothed."""
    if not runs:
        return ""
    return (
        f"Peaks, and the shares at the other's peak, are of running means over {WINDOW:.0%} of a "
        f"run ({window_steps(runs[0]):,} steps): longer than the oscillation at the edge of "
        "stability. Starts and ends are single rows."
    )


def caption(runs: list[Run]) -> str:
    """Return the caption of Figure 1, which agrees with the verdicts."""
    both = sum(map(rises_and_falls, runs))
    apart = [
        abs(smoothed_peak_step(run, KEYS["ECE"]) - smoothed_peak_step(run, KEYS["sharpness"]))
        for run in runs
    ]
    together = sum(is_together(run) for run in runs)
    return (
        f"Training split. Both rise and fall in {both} of {len(runs)} runs. Their peaks are "
        f"{min(apart, default=0):,.0f} to {max(apart, default=0):,.0f} steps apart; in {together} "
        f"of {len(runs)} each is above half of its height where the other peaks. Dashed: 2 / lr."
    )


def is_together(run: Run) -> bool:
    """Whether each quantity is above half of its peak where the other peaks."""
    return min(shares_at_the_others_peak(run)) > HALF


def claims(setting: Setting, runs: list[Run]) -> list[Claim]:
    """Judge every run: both quantities rise and fall by half, and peak at about the same time."""
    if not runs:
        return claims_without_runs(RISE_AND_FALL, TOGETHER)

    both = [rises_and_falls(run) for run in runs]
    together = [is_together(run) for run in runs]
    ece_peaks = [smoothed_peak_step(run, "train/ece") for run in runs]
    sharpness_peaks = [smoothed_peak_step(run, "train/gn_sharpness") for run in runs]
    apart = [abs(a - b) for a, b in zip(ece_peaks, sharpness_peaks, strict=True)]

    reasons = [setting.why_not_judged, missing_runs(len(runs), len(configs(setting)))]
    return [
        judge(
            RISE_AND_FALL,
            found=f"{sum(both)} of {len(both)} runs",
            paper="every run",
            holds=all(both),
            rule="ours: start and end below half of the peak",
            reasons=reasons,
        ),
        judge(
            TOGETHER,
            found=f"{sum(together)} of {len(runs)} runs; "
            f"peaks {min(apart):,.0f} to {max(apart):,.0f} steps apart, "
            f"of ECE at {min(ece_peaks):,.0f} to {max(ece_peaks):,.0f}",
            paper="around the same time",
            holds=all(together),
            rule="ours: at the peak of one the other is above half of its own, in every run, both "
            f"smoothed over {WINDOW:.0%} of the run",
            reasons=reasons,
        ),
    ]
