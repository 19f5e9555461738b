"""Squared error (App. D): under-confidence by construction, and sharpness that does not decay."""

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import coupling, spread_text
from toosure.recipes.too_sharp import paper, sweeps
from toosure.runs import Run

CLASSES = {"cifar10": 10, "cifar100": 100}
NEAR = 0.2  # of the limit
SAYS = (
    "severely under-confident on the training set",
    "confidence goes to e / (e + K - 1)",
    "training ECE stays large",
    "sharpness does not decay",
)


def classes_of(setting: Setting) -> int:
    return 10 if setting.quick else CLASSES[setting.data]


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return the end of each run, and whether it lies where App. D says."""
    found = {name: shelf.runs(configs) for name, configs in sweeps.mse(setting).items()}
    rows = tuple(row(name, run) for name, runs in found.items() for run in runs)
    header = (
        "", "word", "train accuracy", "train confidence", "train ECE", "test ECE",
        "end / largest sharpness", "r of train ECE and sharpness",
    )  # fmt: skip
    limit = paper.mse_confidence(classes_of(setting))
    steps = next(iter(sweeps.mse(setting).values()))[0].steps
    note = (
        f"At the end of {steps:,} steps. The optimum of squared error gives the true class "
        f"e / (e + K - 1) = {limit:.3f} of the softmax, whatever the accuracy."
    )
    table = Table("Mean squared error", header, rows, note)
    wanted = {name: len(configs) for name, configs in sweeps.mse(setting).items()}
    claims = [c for name, of in found.items() for c in claims_of(name, of, limit, wanted[name])]
    return Findings(claims, [table], {name: [run.last for run in r] for name, r in found.items()})


def row(name: str, run: Run) -> tuple[str, ...]:
    last, columns = run.last, run.columns
    r = coupling(columns["train/ece"], columns["train/gn_sharpness"], columns["train/loss"])
    keys = ("train/accuracy", "train/confidence", "train/ece", "val/ece")
    numbers = (f"{last[key]:.3f}" for key in keys)
    return name, run.config["optimizer"], *numbers, f"{kept(run):.2f}", f"{r.pearson:.2f}"


def kept(run: Run) -> float:
    """Return the last sharpness as a share of the largest."""
    sharpness = run.columns["train/gn_sharpness"]
    return float(sharpness[-1] / np.nanmax(sharpness))


def claims_of(name: str, runs: list[Run], limit: float, wanted: int) -> list[Claim]:
    """Judge every run: confidence far below accuracy, close to its limit; sharpness stays.

    These follow from the loss itself, so they are judged on any data.
    """
    says = [f"MSE, {name}: {what}" for what in SAYS]
    if not runs:
        return unrun(*says)
    gap = [run.last["train/confidence"] - run.last["train/accuracy"] for run in runs]
    sure = [run.last["train/confidence"] for run in runs]
    ece = [run.last["train/ece"] for run in runs]
    stays = [kept(run) for run in runs]
    n, lack = f"n = {len(runs)} rates", lacking(len(runs), wanted)
    return [
        judged(says[0], f"confidence minus accuracy {spread_text(gap)} ({n})", "severely",
               all(each < -0.2 for each in gap), "ours: every run below -.2", lack),
        judged(says[1], f"{spread_text(sure, '.3f')} ({n})", f"{limit:.3f}",
               all(abs(each / limit - 1) < NEAR for each in sure),
               f"ours: every run within {NEAR:.0%} of it", lack),
        judged(says[2], f"{spread_text(ece, '.3f')} ({n})", "large",
               all(each > 0.2 for each in ece), "ours: every run above .2", lack),
        judged(says[3], f"end is {spread_text(stays)} of the largest ({n})", "does not attenuate",
               all(each > 0.5 for each in stays), "ours: every run ends above half of its largest",
               lack),
    ]  # fmt: skip
