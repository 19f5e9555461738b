"""BulkSGD: oscillations, and a sharpness of thousands while the loss still falls (Figure 2)."""

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table
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
    if not runs:
        return []
    why = "judged on CIFAR-10 only" if setting.quick else ""
    top = max(float(np.nanmax(run.columns["train/gn_sharpness"])) for run in runs)
    falls = [best_late(run) for run in runs]
    length = f"over {runs[0].config['steps']:,} steps"
    return [
        Claim(f"BulkSGD's sharpness reaches thousands, {length}", f"largest {top:,.0f}",
              "thousands, over 100,000 steps", None if why else top >= 1000, why),
        Claim("... while the training loss still falls", f"{sum(falls)} of {len(falls)} runs",
              "minimised over 100,000 steps", None if why else all(falls),
              why or "ours: the least loss lies in the last quarter of the run"),
    ]  # fmt: skip


def oscillation(setting: Setting, shelf: Shelf) -> list[Claim]:
    """Judge: its loss goes up more often than SGD's over the same steps."""
    runs = shelf.runs(sweeps.bulk(setting).values(), diverged=True)
    plain = shelf.runs(sweeps.column(setting, "SGD", setting.first))
    if not runs or not plain:
        return []
    until = min(run.config["steps"] for run in runs)
    rose, usual = (float(np.mean([rises(r, until) for r in of])) for of in (runs, plain))
    why = "judged on CIFAR-10 only" if setting.quick else ""
    said = f"loss rose in {rose:.0%} of the intervals, SGD {usual:.0%}, up to step {until:,}"
    return [Claim("BulkSGD oscillates", said, "steep oscillations", None if why else rose > usual,
                  why or "ours: more often than SGD")]  # fmt: skip


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return the longer runs: whether the length is what was missing."""
    runs = sweeps.long_bulk(setting)
    return Findings(claims(setting, shelf, runs), [table(setting, shelf, runs)])


def best_late(run: Run) -> bool:
    """Whether the training loss was least in the last quarter of the run."""
    loss = run.columns["train/loss"]
    return bool(np.nanargmin(loss) >= 0.75 * (len(loss) - 1))
