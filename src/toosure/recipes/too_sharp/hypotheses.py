"""Flat minima against directional flatness: peaks, areas and ends of ECE, by optimizer."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import mean_and_spread, spread_text
from toosure.recipes.too_sharp import bulk, sweeps
from toosure.recipes.too_sharp.trace import SMALL, area, last, peak, rises, settled
from toosure.runs import Run

SUBSTANTIAL = 0.8  # of a peak; below it is "substantially lower", for which the paper has no figure


def groups(setting: Setting, shelf: Shelf, with_bulk: bool = True) -> dict[str, list[Run]]:
    """Return the runs by optimizer, BulkSGD by how many directions it leaves out."""
    seed = setting.first
    found = {n: shelf.runs(sweeps.column(setting, n, seed)) for n in sweeps.columns(setting)}
    configs = sweeps.bulk(setting) if with_bulk else {}
    for k in dict.fromkeys(k for _, k in configs):
        found[f"BulkSGD, k = {k}"] = shelf.runs(
            (c for (_, of), c in configs.items() if of == k), diverged=True
        )
    return {name: runs for name, runs in found.items() if runs}


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return the two hypotheses as a table and as claims, with BulkSGD's own claims (Figure 2)."""
    found = groups(setting, shelf)
    claims = [*directional(setting, found), *bulk.claims(setting, shelf, sweeps.bulk(setting))]
    claims += bulk.oscillation(setting, shelf)
    return Findings(
        claims,
        [table(setting, found), bulk.table(setting, shelf, sweeps.bulk(setting))],
        values(found),
    )


def horizon(setting: Setting) -> int:
    """Return the length of the shortest runs, up to which all can be compared."""
    lengths = [series.steps for series in sweeps.columns(setting).values()]
    return min([*lengths, *(config.steps for config in sweeps.bulk(setting).values())])


def table(setting: Setting, found: dict[str, list[Run]]) -> Table:
    """Lay out peak, area, time to calibration and end sharpness, a row an optimizer."""
    until = horizon(setting)
    rows = []
    for name, runs in found.items():
        ends = [last(run, "train/gn_sharpness") for run in runs]
        rows.append((
            name, str(len(runs)), spread_text([peak(run) for run in runs], ".3f"),
            spread_text([area(run, until) for run in runs], ".1f"), ever(runs),
            f"{min(ends):.3g} to {max(ends):.3g}", f"{runs[0].last['step']:,}",
        ))  # fmt: skip
    note = (
        f"Training split. Mean ± standard deviation over learning rates; the area under ECE up to "
        f"step {until:,}, the end of the shortest runs, in steps; the step from which ECE stays "
        f"below {SMALL}, over the runs that get there; sharpness at each run's own end."
    )
    header = (
        "optimizer", "runs", "peak ECE", "area", f"steps to ECE < {SMALL}", "end sharpness",
        "steps",
    )  # fmt: skip
    return Table("Flat minima or flat directions?", header, tuple(rows), note)


def ever(runs: Sequence[Run]) -> str:
    """Print when runs settled, and how many did."""
    found = [step for step in map(settled, runs) if math.isfinite(step)]
    if not found:
        return f"never (0 of {len(runs)})"
    return f"{np.mean(found):,.0f} ({len(found)} of {len(runs)})"


def directional(setting: Setting, found: dict[str, list[Run]]) -> list[Claim]:
    """Judge Sec. 3.2: SAM peaks as GD does; Muon and BulkSGD peak lower."""
    says = {"SAM": "Hypothesis 1 fails: SAM's peak training ECE is comparable with GD's"}
    for name in ("Muon", *bulks(setting)):
        says[name] = f"Hypothesis 2: {name} peaks substantially lower than GD and SGD"
    peaks = {name: mean_and_spread([peak(run) for run in runs])[0] for name, runs in found.items()}
    if not {"GD", "SGD"} <= peaks.keys():
        return unrun(*says.values())
    bar = SUBSTANTIAL * min(peaks["GD"], peaks["SGD"])

    def claim(name: str) -> Claim:
        if name not in peaks:
            return unrun(says[name])[0]
        lower, three = name != "SAM", (name, "GD", "SGD")
        rule = f"ours: {'below' if lower else 'above'} {SUBSTANTIAL} of the lower of GD and SGD, "
        return judged(
            says[name], ", ".join(f"{each} {peaks[each]:.3f}" for each in three),
            "substantially lower" if lower else "comparable", (peaks[name] < bar) == lower,
            rule + f"{bar:.3f}", setting.elsewhere,
            lacking(sum(len(found[n]) for n in three), sum(expected(setting, n) for n in three)),
        )  # fmt: skip

    return [claim(name) for name in says]


def bulks(setting: Setting) -> dict[str, int]:
    """Return the groups of BulkSGD and how many runs each has."""
    return Counter(f"BulkSGD, k = {k}" for _, k in sweeps.bulk(setting))


def expected(setting: Setting, name: str) -> int:
    """Return how many runs a group has where none is missing."""
    columns = sweeps.columns(setting)
    return len(columns[name].rates) if name in columns else bulks(setting)[name]


def values(found: dict[str, list[Run]]) -> dict[str, Any]:
    return {
        name: [
            {"run": r.name, "peak": peak(r), "area": area(r), "settled": settled(r),
             "end_sharpness": last(r, "train/gn_sharpness"), "rises": rises(r)}
            for r in runs
        ]
        for name, runs in found.items()
    }  # fmt: skip
