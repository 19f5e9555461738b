"""BulkSGD: oscillations, and a sharpness of thousands while the loss still falls (Figure 2)."""

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.trace import last, peak, rises
from toosure.runs import Run

Runs = dict[tuple[str, int], RunConfig]


def table(setting: Setting, shelf: Shelf, runs: Runs) -> Table:
    """Lay BulkSGD out, a row a run, with the SGD runs of Table 1 below."""
    rows = []
    for (rate, k), config in runs.items():
        run = shelf.run(config, diverged=True)
        if run is not None:
            rows.append((f"BulkSGD {rate}", str(k), *cells(run)))
    rates = (f"SGD {rate}" for rate in sweeps.columns(setting)["SGD"].rates)
    for name, config in zip(rates, sweeps.column(setting, "SGD", setting.first), strict=True):
        if (run := shelf.run(config)) is not None:
            rows.append((name, "0", *cells(run)))
    header = (
        "rate", "k", "largest sharpness", "first loss", "least loss", "last loss",
        "intervals where it rose", "peak ECE", "steps",
    )  # fmt: skip
    note = "k is how many top eigenvectors of the Hessian are projected out of each step."
    return Table("BulkSGD", header, tuple(rows), note)


def cells(run: Run) -> tuple[str, ...]:
    loss, sharpness = run.columns["train/loss"], run.columns["train/gn_sharpness"]
    numbers = (
        float(np.nanmax(sharpness)),
        float(loss[0]),
        float(np.nanmin(loss)),
        last(run, "train/loss"),
    )
    shown = (f"{number:.3g}" for number in numbers)
    return (*shown, f"{rises(run):.0%}", f"{peak(run):.3f}", f"{run.last['step']:,}")


def claims(setting: Setting, shelf: Shelf, configs: Runs) -> list[Claim]:
    """Judge: its sharpness reaches thousands while its loss still falls."""
    runs = shelf.runs(configs.values(), diverged=True)
    length = f"over {next(iter(configs.values())).steps:,} steps"
    says = (
        f"BulkSGD's sharpness reaches thousands, {length}",
        f"... while the training loss still falls, {length}",
    )
    if not runs:
        return unrun(*says)
    unless = (setting.elsewhere, lacking(len(runs), len(configs)))
    top = max(float(np.nanmax(run.columns["train/gn_sharpness"])) for run in runs)
    falls = [still_falls(run) for run in runs]
    return [
        judged(says[0], f"largest {top:,.0f}", "thousands, over 100,000 steps", top >= 1000,
               "ours: one of the runs above 1,000", *unless),
        judged(says[1], f"{sum(falls)} of {len(falls)} runs", "minimised over 100,000 steps",
               all(falls), "ours: complete, the least loss in the last quarter, the last below the "
               "first, in every run", *unless),
    ]  # fmt: skip


def oscillation(setting: Setting, shelf: Shelf) -> list[Claim]:
    """Judge: its loss goes up more often than SGD's over the same steps."""
    configs, others = sweeps.bulk(setting), sweeps.column(setting, "SGD", setting.first)
    runs, plain = shelf.runs(configs.values(), diverged=True), shelf.runs(others)
    if not runs or not plain:
        return unrun("BulkSGD oscillates")
    until = min(run.config["steps"] for run in runs)
    rose, usual = (float(np.mean([rises(r, until) for r in of])) for of in (runs, plain))
    said = f"loss rose in {rose:.0%} of the intervals, SGD {usual:.0%}, up to step {until:,}"
    lack = lacking(len(runs) + len(plain), len(configs) + len(others))
    return [judged("BulkSGD oscillates", said, "steep oscillations", rose > usual,
                   "ours: more often than SGD", setting.elsewhere, lack)]  # fmt: skip


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return the longer runs: whether the length is what was missing."""
    runs = sweeps.long_bulk(setting)
    return Findings(claims(setting, shelf, runs), [table(setting, shelf, runs)])


def still_falls(run: Run) -> bool:
    """Whether a run is complete, its loss least in the last quarter and below the first at last."""
    loss = run.columns["train/loss"]
    late = np.nanargmin(loss) >= 0.75 * (len(loss) - 1)
    return bool(run.status == "complete" and late and loss[-1] < loss[0])
