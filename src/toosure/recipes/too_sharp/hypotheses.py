"""Flat minima against directional flatness: peaks, areas and ends of ECE; Muon and BulkSGD."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table
from toosure.recipes.series import mean_and_spread, spread_text
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run

SMALL = 0.01  # a training ECE below which a run counts as calibrated in-sample


def peak(run: Run) -> float:
    """Return the largest training ECE after the start (the start's is an accident of the seed)."""
    return float(np.nanmax(run.columns["train/ece"][1:]))


def area(run: Run, until: float = math.inf) -> float:
    """Return the area under the training ECE up to a step, in steps.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20]), "train/ece": np.array([0.0, 0.2, 0.1])}
    >>> area(Row(columns=columns))
    2.5
    """
    step, ece = run.columns["step"], run.columns["train/ece"]
    kept = (step <= until) & np.isfinite(ece)
    return float(np.trapezoid(ece[kept], step[kept]))


def settled(run: Run, below: float = SMALL) -> float:
    """Return the step from which on the training ECE stays below a value; infinity if never.

    >>> from types import SimpleNamespace as Row
    >>> columns = {"step": np.array([0, 10, 20, 30]), "train/ece": np.array([0, 0.2, 0.009, 0.001])}
    >>> settled(Row(columns=columns))
    20.0
    """
    step, ece = run.columns["step"], run.columns["train/ece"]
    above = np.flatnonzero(~(ece < below))
    if len(above) == 0:
        return float(step[0])
    return float(step[above[-1] + 1]) if above[-1] + 1 < len(step) else math.inf


def last(run: Run, key: str) -> float:
    """Return the last finite value of a quantity: a diverged run ends with a row without any."""
    values = run.columns[key]
    return float(values[np.isfinite(values)][-1])


def at_step(run: Run, key: str, step: float) -> float:
    """Return a quantity at the last row up to a step."""
    kept = np.flatnonzero(run.columns["step"] <= step)
    return float(run.columns[key][kept[-1]])


def groups(setting: Setting, shelf: Shelf, bulk: bool) -> dict[str, list[Run]]:
    """Return the runs by optimizer, BulkSGD by how many directions it leaves out."""
    seed = setting.first
    found = {n: shelf.runs(sweeps.column(setting, n, seed)) for n in sweeps.columns(setting)}
    configs = sweeps.bulk(setting) if bulk else {}
    for k in dict.fromkeys(k for _, k in configs):
        found[f"BulkSGD, k = {k}"] = shelf.runs(
            (c for (_, of), c in configs.items() if of == k), diverged=True
        )
    return {name: runs for name, runs in found.items() if runs}


def flatness(setting: Setting, shelf: Shelf) -> Findings:
    """Return the two hypotheses as a table and as claims, with BulkSGD's own claims (Figure 2)."""
    found = groups(setting, shelf, bulk=True)
    claims = [*directional(setting, found), *bulk_claims(setting, shelf)]
    return Findings(claims, [table(setting, found), bulk_table(setting, shelf)], values(found))


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
    if not {"GD", "SGD", "SAM", "Muon"} <= found.keys():
        return []
    peaks = {name: mean_and_spread([peak(run) for run in runs])[0] for name, runs in found.items()}
    plain = min(peaks["GD"], peaks["SGD"])
    bulk = [name for name in peaks if name.startswith("Bulk")]
    said = ", ".join(f"{name} {value:.3f}" for name, value in peaks.items())
    why = "judged on CIFAR-10 only" if setting.quick else ""
    return [
        Claim("Hypothesis 1 fails: SAM's peak training ECE is comparable with GD's", said,
              "comparable", None if why else bool(peaks["SAM"] > 0.8 * plain),
              why or "ours: above 0.8 of the lower of GD and SGD"),
        Claim("Hypothesis 2: Muon peaks substantially lower than GD and SGD", said,
              "substantially lower", None if why else bool(peaks["Muon"] < 0.8 * plain),
              why or "ours: below 0.8 of the lower of GD and SGD"),
        *(Claim(f"Hypothesis 2: {name} peaks substantially lower than GD and SGD", said,
                "substantially lower", None if why else bool(peaks[name] < 0.8 * plain),
                why or "ours: below 0.8 of the lower of GD and SGD") for name in bulk),
    ]  # fmt: skip


def muon(setting: Setting, shelf: Shelf) -> Findings:
    """Return Muon's margins and its gap between training and test beside the others'."""
    found = groups(setting, shelf, bulk=False)
    until = min(series.steps for series in sweeps.columns(setting).values())
    keys = ("train/margin_q50", "train/margin_q01", "train/ece", "val/ece", "val/accuracy")
    means = {
        name: {key: mean_and_spread([at_step(r, key, until) for r in runs])[0] for key in keys}
        for name, runs in found.items()
    }
    rows = tuple(
        (name, *(spread_text([at_step(run, key, until) for run in runs], ".3g") for key in keys))
        for name, runs in found.items()
    )
    header = (
        "",
        "median train margin",
        "1 % train margin",
        "train ECE",
        "test ECE",
        "test accuracy",
    )
    note = f"At step {until:,} of every run, mean ± standard deviation over learning rates."
    claims = muon_claims(setting, means) if "Muon" in means else []
    return Findings(claims, [Table("Muon's margins", header, rows, note)], {"muon": means})


def muon_claims(setting: Setting, means: dict[str, dict[str, float]]) -> list[Claim]:
    """Judge: margins unusually large, training ECE near zero, test ECE high."""
    own = means["Muon"]
    others = {n: each["train/margin_q50"] for n, each in means.items() if n in ("GD", "SGD", "SAM")}
    why = "judged on CIFAR-10 only" if setting.quick or setting.data != "cifar10" else ""
    margins = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
    return [
        Claim("Muon's training margins are unusually large",
              f"median {own['train/margin_q50']:.2f}; {margins}", "unusually large",
              None if why or not others
              else bool(own["train/margin_q50"] > 2 * max(others.values())),
              why or "ours: twice the others', at the same number of steps"),
        Claim("Muon's training ECE is near zero", f"{own['train/ece']:.4f}", "near zero",
              None if why else bool(own["train/ece"] < SMALL), why or f"ours: below {SMALL}"),
        Claim("Muon is severely over-confident on test data", f"ECE {own['val/ece']:.3f}", "severe",
              None if why else bool(own["val/ece"] > 0.2), why or "ours: ECE above .2"),
    ]  # fmt: skip


# -- BulkSGD --------------------------------------------------------------------------------


def rises(run: Run) -> float:
    """Return the share of the measured intervals over which the training loss rose."""
    loss = run.columns["train/loss"]
    return float((np.diff(loss[np.isfinite(loss)]) > 0).mean())


def bulk_table(setting: Setting, shelf: Shelf) -> Table:
    """Lay BulkSGD out, a row a run, with SGD at the same rate where Table 1 has it."""
    rows = []
    for (rate, k), config in sweeps.bulk(setting).items():
        run = shelf.run(config, diverged=True)
        if run is not None:
            rows.append((f"BulkSGD {rate}", str(k), *bulk_cells(run)))
    for run in shelf.runs(sweeps.column(setting, "SGD", setting.first)):
        rows.append((f"SGD {run.config['optimizer'].partition('=')[2]:.6}", "0", *bulk_cells(run)))
    header = (
        "rate", "k", "largest sharpness", "first loss", "least loss", "last loss",
        "intervals where it rose", "peak ECE", "steps",
    )  # fmt: skip
    note = "k is how many top eigenvectors of the Hessian are projected out of each step."
    return Table("BulkSGD", header, tuple(rows), note)


def bulk_cells(run: Run) -> tuple[str, ...]:
    loss, sharpness = run.columns["train/loss"], run.columns["train/gn_sharpness"]
    numbers = (
        float(np.nanmax(sharpness)),
        float(loss[0]),
        float(np.nanmin(loss)),
        last(run, "train/loss"),
    )
    shown = (f"{number:.3g}" for number in numbers)
    return (*shown, f"{rises(run):.0%}", f"{peak(run):.3f}", f"{run.last['step']:,}")


def bulk_claims(setting: Setting, shelf: Shelf) -> list[Claim]:
    """Judge: it oscillates, its sharpness reaches thousands, its loss still falls."""
    runs = shelf.runs(sweeps.bulk(setting).values(), diverged=True)
    plain = shelf.runs(sweeps.column(setting, "SGD", setting.first))
    if not runs:
        return []
    why = "judged on CIFAR-10 only" if setting.quick else ""
    top = max(float(np.nanmax(run.columns["train/gn_sharpness"])) for run in runs)
    falls = [bool(best_late(run)) for run in runs]
    rose, usual = float(np.mean([*map(rises, runs)])), [*map(rises, plain)]
    return [
        Claim("BulkSGD's sharpness reaches thousands", f"largest {top:,.0f}", "thousands",
              None if why else top >= 1000, why or f"over {runs[0].last['step']:,} steps"),
        Claim("... while the training loss still falls", f"{sum(falls)} of {len(falls)} runs",
              "minimised over 100,000 steps", None if why else all(falls),
              why or "ours: the least loss lies in the last quarter of the run"),
        Claim("BulkSGD oscillates", f"loss rose in {rose:.0%} of the intervals, SGD "
              + (f"{np.mean(usual):.0%}" if usual else "not run"), "steep oscillations",
              None if why or not usual else bool(rose > np.mean(usual)),
              why or "ours: more often than SGD"),
    ]  # fmt: skip


def best_late(run: Run) -> bool:
    """Whether the training loss was least in the last quarter of the run."""
    loss = run.columns["train/loss"]
    return bool(np.nanargmin(loss) >= 0.75 * (len(loss) - 1))


def values(found: dict[str, list[Run]]) -> dict[str, Any]:
    return {
        name: [
            {"run": r.name, "peak": peak(r), "area": area(r), "settled": settled(r),
             "end_sharpness": last(r, "train/gn_sharpness"), "rises": rises(r)}
            for r in runs
        ]
        for name, runs in found.items()
    }  # fmt: skip
