"""Squared error (App. D): under-confidence by construction, and sharpness that does not decay."""

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table
from toosure.recipes.series import coupling, spread_text
from toosure.recipes.too_sharp import paper, sweeps
from toosure.runs import Run

CLASSES = {"cifar10": 10, "cifar100": 100}


def classes_of(setting: Setting) -> int:
    return 10 if setting.quick else CLASSES.get(setting.data, 10)


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
    claims = [claim for name, runs in found.items() for claim in claims_of(name, runs, limit)]
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


def claims_of(name: str, runs: list[Run], limit: float) -> list[Claim]:
    """Judge: confidence far below accuracy, close to its limit, and sharpness that stays."""
    if not runs:
        return []
    gap = [run.last["train/confidence"] - run.last["train/accuracy"] for run in runs]
    sure = [run.last["train/confidence"] for run in runs]
    ece = [run.last["train/ece"] for run in runs]
    stays = [kept(run) for run in runs]
    n = f"n = {len(runs)} rates"
    return [
        Claim(f"MSE, {name}: severely under-confident on the training set",
              f"confidence minus accuracy {spread_text(gap)} ({n})", "severely",
              max(gap) < -0.2, "ours: every run below -.2"),
        Claim(f"MSE, {name}: confidence goes to e / (e + K - 1)",
              f"{spread_text(sure, '.3f')} ({n})", f"{limit:.3f}",
              bool(np.abs(np.mean(sure) - limit) < 0.05), "ours: mean within .05"),
        Claim(f"MSE, {name}: training ECE stays large", f"{spread_text(ece, '.3f')} ({n})", "large",
              min(ece) > 0.2, "ours: every run above .2"),
        Claim(f"MSE, {name}: sharpness does not decay",
              f"end is {spread_text(stays)} of the largest ({n})", "does not attenuate",
              min(stays) > 0.5, "ours: every run ends above half of its largest"),
    ]  # fmt: skip
