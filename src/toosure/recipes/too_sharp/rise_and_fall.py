"""Figure 1: ECE and sharpness rise, peak about together, and fall, under GD and SGD."""

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run

NAMES = ("GD", "SGD")
KEYS = {"ECE": "train/ece", "sharpness": "train/gn_sharpness"}
CLOSE = 0.1  # of a run's length: peaks as near as this count as together


def configs(setting: Setting) -> list[RunConfig]:
    """Return the GD and SGD runs of Table 1."""
    return [c for name in NAMES for c in sweeps.column(setting, name, setting.first)]


def peak_step(run: Run, key: str) -> float:
    """Return the step at which a quantity was largest."""
    return float(run.columns["step"][np.nanargmax(run.columns[key])])


def fallen(run: Run, key: str) -> float:
    """Return the last value as a share of the largest."""
    values = run.columns[key]
    return float(values[-1] / np.nanmax(values))


def risen(run: Run, key: str) -> float:
    """Return the first value as a share of the largest."""
    values = run.columns[key]
    return float(values[0] / np.nanmax(values))


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return when each quantity peaked, and what was left of it at the end."""
    runs = shelf.runs(configs(setting))
    rows = tuple(
        (
            run.config["optimizer"],
            *(f"{peak_step(run, key):,.0f}" for key in KEYS.values()),
            *(f"{risen(run, key):.2f}" for key in KEYS.values()),
            *(f"{fallen(run, key):.2f}" for key in KEYS.values()),
        )
        for run in runs
    )
    parts = ("peak of {}, step", "{}: start / peak", "{}: end / peak")
    header = ("word", *(part.format(name) for part in parts for name in KEYS))
    return Findings(
        claims(setting, runs), [Table("Rise and fall", header, rows, "Training split.")]
    )


def claims(setting: Setting, runs: list[Run]) -> list[Claim]:
    """Judge: both rise and fall by half, and peak within a tenth of the run of each other."""
    if not runs:
        return []
    why = "judged on CIFAR-10 only" if setting.quick else ""
    both = [all(max(risen(r, k), fallen(r, k)) < 0.5 for k in KEYS.values()) for r in runs]
    apart = [
        abs(peak_step(r, KEYS["ECE"]) - peak_step(r, KEYS["sharpness"])) / r.columns["step"][-1]
        for r in runs
    ]
    return [
        Claim("Figure 1: ECE and sharpness both rise and fall", f"{sum(both)} of {len(both)} runs",
              "every run", None if why else all(both), why or "ours: ends below half of the peak"),
        Claim("Figure 1: they peak around the same time",
              f"{np.mean(apart):.0%} of the run apart on average, {max(apart):.0%} at most",
              "around the same time", None if why else bool(np.mean(apart) <= CLOSE),
              why or f"ours: {CLOSE:.0%} on average"),
    ]  # fmt: skip
