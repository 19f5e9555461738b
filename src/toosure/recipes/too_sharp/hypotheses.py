"""Flat minima or directional flatness: peaks, areas and ends of ECE, by optimizer."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

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
from toosure.recipes.series import mean_std_text
from toosure.recipes.too_sharp import bulk_sgd, sweeps
from toosure.recipes.too_sharp.summaries import (
    SMALL,
    ece_area,
    last_finite,
    mean_peak,
    peak_ece,
    share_of_increases,
    step_below,
)
from toosure.runs import Run

SUBSTANTIAL = 0.8  # of a peak: ours for "substantially lower"; the paper has no figure


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return claims and table of the two hypotheses, and BulkSGD's own claims (Figure 2)."""
    runs = runs_by_optimizer(setting, store)
    bulk_runs = sweeps.bulk_sgd(setting)
    claims = [
        *hypothesis_claims(setting, runs),
        *bulk_sgd.claims(setting, store, bulk_runs),
        *bulk_sgd.oscillation_claims(setting, store),
    ]
    tables = [comparison_table(setting, runs), bulk_sgd.table(setting, store, bulk_runs)]
    return Findings(claims, tables, unrounded(runs))


def runs_by_optimizer(
    setting: Setting, store: RunStore, with_bulk: bool = True
) -> dict[str, list[Run]]:
    """Return the runs by optimizer; BulkSGD by number of removed directions."""
    groups = {
        name: store.runs(sweeps.rate_configs(setting, name, setting.first_seed))
        for name in sweeps.optimizers(setting)
    }

    configs = sweeps.bulk_sgd(setting) if with_bulk else {}
    for removed, chosen in sweeps.by_directions(configs).items():
        groups[bulk_name(removed)] = store.runs(chosen, diverged=True)

    return {name: runs for name, runs in groups.items() if runs}


def bulk_name(removed: int) -> str:
    return f"BulkSGD, k = {removed}"


def bulk_sizes(setting: Setting) -> dict[str, int]:
    """Return the number of runs in each complete group of BulkSGD."""
    return Counter(bulk_name(k) for _, k in sweeps.bulk_sgd(setting))


def expected_runs(setting: Setting, name: str) -> int:
    """Return the number of runs in a complete group."""
    columns = sweeps.optimizers(setting)
    return len(columns[name].rates) if name in columns else bulk_sizes(setting)[name]


# -- claims ---------------------------------------------------------------------------------


def hypothesis_claims(setting: Setting, runs: dict[str, list[Run]]) -> list[Claim]:
    """Judge Sec. 3.2: SAM's peak is comparable with GD's; Muon and BulkSGD peak lower."""
    statement = {"SAM": "Hypothesis 1 fails: SAM's peak training ECE is comparable with GD's"}
    for name in ("Muon", *bulk_sizes(setting)):
        statement[name] = f"Hypothesis 2: {name} peaks substantially lower than GD and SGD"

    peaks = {name: mean_peak(group) for name, group in runs.items()}
    if not {"GD", "SGD"} <= peaks.keys():
        return claims_without_runs(*statement.values())
    threshold = SUBSTANTIAL * min(peaks["GD"], peaks["SGD"])

    claims = []
    for name, sentence in statement.items():
        if name not in peaks:
            claims += claims_without_runs(sentence)
            continue

        lower = name != "SAM"
        side = "below" if lower else "above"
        compared = (name, "GD", "SGD")
        present = sum(len(runs[each]) for each in compared)
        expected = sum(expected_runs(setting, each) for each in compared)
        claims.append(
            judge(
                sentence,
                found=", ".join(f"{each} {peaks[each]:.3f}" for each in compared),
                paper="substantially lower" if lower else "comparable",
                holds=(peaks[name] < threshold) == lower,
                rule=f"ours: {side} {SUBSTANTIAL} of the lower of GD and SGD, {threshold:.3f}",
                reasons=[setting.why_not_judged, missing_runs(present, expected)],
            )
        )
    return claims


# -- tables ---------------------------------------------------------------------------------


def comparison_table(setting: Setting, groups: dict[str, list[Run]]) -> Table:
    """Lay out peak, area, time to calibration and end sharpness, one row per optimizer."""
    until = shortest_length(setting)
    rows = []
    for name, runs in groups.items():
        sharpness = [last_finite(run, "train/gn_sharpness") for run in runs]
        rows.append(
            (
                name,
                str(len(runs)),
                mean_std_text([peak_ece(run) for run in runs], ".3f"),
                mean_std_text([ece_area(run, until) for run in runs], ".1f"),
                step_below_text(runs),
                f"{min(sharpness):.3g} to {max(sharpness):.3g}",
                f"{runs[0].last['step']:,}",
            )
        )

    header = (
        "optimizer",
        "runs",
        "peak ECE",
        "area",
        f"steps to ECE < {SMALL}",
        "end sharpness",
        "steps",
    )
    note = (
        f"Training split. Mean ± standard deviation over learning rates; the area under ECE up to "
        f"step {until:,}, the end of the shortest runs, in steps; the step from which ECE stays "
        f"below {SMALL}, over the runs that get there; sharpness at each run's own end."
    )
    return Table("Flat minima or flat directions?", header, tuple(rows), note)


def shortest_length(setting: Setting) -> int:
    """Return the length of the shortest runs, up to which all are comparable."""
    lengths = [column.steps for column in sweeps.optimizers(setting).values()]
    lengths += [config.steps for config in sweeps.bulk_sgd(setting).values()]
    return min(lengths)


def step_below_text(runs: Sequence[Run]) -> str:
    """Return the mean step from which ECE stays small, and in how many runs it does."""
    steps = [step for step in map(step_below, runs) if math.isfinite(step)]
    if not steps:
        return f"never (0 of {len(runs)})"
    return f"{np.mean(steps):,.0f} ({len(steps)} of {len(runs)})"


def unrounded(groups: dict[str, list[Run]]) -> dict[str, Any]:
    """Return the numbers of every run, for the JSON file."""
    return {
        name: [
            {
                "run": run.name,
                "peak": peak_ece(run),
                "area": ece_area(run),
                "settled": step_below(run),
                "end_sharpness": last_finite(run, "train/gn_sharpness"),
                "rises": share_of_increases(run),
            }
            for run in runs
        ]
        for name, runs in groups.items()
    }
