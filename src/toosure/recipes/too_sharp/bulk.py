"""BulkSGD: oscillations, and a sharpness of thousands while the loss still falls (Figure 2)."""

import numpy as np

from toosure.recipes.recipe import Claim, Setting, Shelf, Table
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.trace import last, peak, rises
from toosure.runs import Run


def table(setting: Setting, shelf: Shelf) -> Table:
    """Lay BulkSGD out, a row a run, with SGD at the same rate where Table 1 has it."""
    rows = []
    for (rate, k), config in sweeps.bulk(setting).items():
        run = shelf.run(config, diverged=True)
        if run is not None:
            rows.append((f"BulkSGD {rate}", str(k), *cells(run)))
    for run in shelf.runs(sweeps.column(setting, "SGD", setting.first)):
        rows.append((f"SGD {run.config['optimizer'].partition('=')[2]:.6}", "0", *cells(run)))
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


def claims(setting: Setting, shelf: Shelf) -> list[Claim]:
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
