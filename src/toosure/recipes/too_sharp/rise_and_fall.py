"""Figure 1: ECE and sharpness rise, peak about together, and fall, under GD and SGD."""

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run

NAMES = ("GD", "SGD")
KEYS = {"ECE": "train/ece", "sharpness": "train/gn_sharpness"}
HALF = 0.5  # of a peak: starts and ends lie below it, and each series at the other's peak above it
SAYS = (
    "Figure 1: ECE and sharpness both rise and fall",
    "Figure 1: they peak around the same time",
)


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


def at_the_others_peak(run: Run) -> tuple[float, float]:
    """Return ECE where sharpness peaks and sharpness where ECE does, as shares of their largest."""
    ece, sharpness = (run.columns[key] for key in KEYS.values())
    there, here = np.nanargmax(sharpness), np.nanargmax(ece)
    return float(ece[there] / np.nanmax(ece)), float(sharpness[here] / np.nanmax(sharpness))


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return when each quantity peaked, and what was left of it at the end."""
    runs = shelf.runs(configs(setting))
    rows = tuple(
        (
            run.config["optimizer"],
            *(f"{peak_step(run, key):,.0f}" for key in KEYS.values()),
            *(f"{risen(run, key):.2f}" for key in KEYS.values()),
            *(f"{fallen(run, key):.2f}" for key in KEYS.values()),
            *(f"{share:.2f}" for share in at_the_others_peak(run)),
        )
        for run in runs
    )
    parts = ("peak of {}, step", "{}: start / peak", "{}: end / peak")
    header = ("word", *(part.format(name) for part in parts for name in KEYS))
    header += ("ECE at sharpness' peak / its own", "sharpness at ECE's peak / its own")
    return Findings(
        claims(setting, runs), [Table("Rise and fall", header, rows, "Training split.")]
    )


def claims(setting: Setting, runs: list[Run]) -> list[Claim]:
    """Judge every run: both rise and fall by half; at the peak of one the other is above half."""
    if not runs:
        return unrun(*SAYS)
    unless = (setting.elsewhere, lacking(len(runs), len(configs(setting))))
    both = [all(risen(r, k) < HALF and fallen(r, k) < HALF for k in KEYS.values()) for r in runs]
    together = [min(at_the_others_peak(run)) > HALF for run in runs]
    ece, sharpness = ([peak_step(run, key) for run in runs] for key in KEYS.values())
    apart = [abs(a - b) for a, b in zip(ece, sharpness, strict=True)]
    return [
        judged(SAYS[0], f"{sum(both)} of {len(both)} runs", "every run", all(both),
               "ours: start and end below half of the peak", *unless),
        judged(SAYS[1],
               f"{sum(together)} of {len(runs)} runs; peaks {min(apart):,.0f} to {max(apart):,.0f} "
               f"steps apart, of ECE at {min(ece):,.0f} to {max(ece):,.0f}",
               "around the same time", all(together),
               "ours: at the peak of one the other is above half of its own, in every run",
               *unless),
    ]  # fmt: skip
