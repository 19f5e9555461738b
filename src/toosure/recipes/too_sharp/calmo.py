"""CalMO (version 1 of the paper): ResNet-20 with and without it, judged at its best step."""

from typing import Any

from toosure.config import RunConfig
from toosure.recipes.kept import Scores, scores, seconds_of_training
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import mean_and_spread, spread_text
from toosure.recipes.too_sharp import paper
from toosure.runs import Run

OPTIMIZERS = {
    "SGD": "sgd:lr=0.01,momentum=0.9",
    "Muon": "muon:lr=0.01",
    "AdamW": "adamw:lr=0.001",
    "SAM": "sam:base=sgd,lr=0.01,momentum=0.9,rho=0.05",
}
METHODS: dict[str, dict[str, str]] = {
    "CE": {},
    "CalMO": {"objective": "calmo"},
    "smoothness only": {"objective": "calmo:robust=0"},
    "robustness only": {"objective": "calmo:smooth=0"},
    "label smoothing": {"loss": "label_smoothing"},
    "focal": {"loss": "focal"},
}
Cell = tuple[str, str]  # optimizer, method
MAIN: tuple[Cell, ...] = (("SGD", "CE"), ("SGD", "CalMO"), ("Muon", "CE"), ("Muon", "CalMO"))
MORE: tuple[Cell, ...] = (
    ("SGD", "smoothness only"), ("SGD", "robustness only"), ("SGD", "label smoothing"),
    ("SGD", "focal"), ("AdamW", "CE"), ("AdamW", "CalMO"), ("SAM", "CE"), ("SAM", "CalMO"),
)  # fmt: skip


def config(setting: Setting, cell: Cell, seed: int) -> RunConfig:
    """Return a run: 45,000 / 5,000 images, batch 128, 10,000 steps, no augmentation."""
    scale: dict[str, Any] = {"data": "cifar10", "steps": 10_000, "batch": 128, "every": 250}
    if setting.quick:
        data = "digits:train=128,val=100,test=200"
        scale = {"data": data, "steps": 6, "batch": 32, "every": 3}
    optimizer, method = cell
    more = {"optimizer": OPTIMIZERS[optimizer], **METHODS[method], "measure": ("best",)}
    return RunConfig.of({**scale, **more, "model": "resnet20", "seed": seed})


def runs_of(setting: Setting, cell: Cell) -> list[RunConfig]:
    """Return a cell's runs: three seeds of SGD with and without CalMO, one of the rest."""
    if cell in MAIN and cell[0] == "SGD" and not setting.quick:
        return [config(setting, cell, seed) for seed in setting.among(0, 1, 2)]
    return [config(setting, cell, setting.first)]


def configs(setting: Setting, cells: tuple[Cell, ...] = MAIN) -> list[RunConfig]:
    """Return the runs of several cells; they are of CIFAR-10 and no other data."""
    if setting.data != "cifar10":
        return []
    return [each for cell in cells for each in runs_of(setting, cell)]


def findings(setting: Setting, shelf: Shelf, cells: tuple[Cell, ...] = MAIN) -> Findings:
    """Return accuracy and ECE at the best step, and whether CalMO calibrates at no cost."""
    runs = {cell: shelf.runs(runs_of(setting, cell)) for cell in cells}
    found = {c: [s for run in of if (s := scores(run)) is not None] for c, of in runs.items()}
    claims = [
        improved(setting, name, found[name, "CE"], found[name, "CalMO"])
        for name in OPTIMIZERS
        if (name, "CE") in found and (name, "CalMO") in found
    ]
    numbers = {" ".join(c): [each._asdict() for each in of] for c, of in found.items()}
    return Findings(claims, [table(runs, found)], numbers)


def table(runs: dict[Cell, list[Run]], found: dict[Cell, list[Scores]]) -> Table:
    """Lay cells out, a row each, the paper's figures beside ours."""
    rows = []
    for cell, of in found.items():
        if not of:
            continue
        pace = [1000 * seconds_of_training(run) / run.last["step"] for run in runs[cell]]
        accuracy, error = paper.CALMO[cell]
        rows.append((
            *cell, str(len(of)), spread_text([s.step for s in of], ".0f"),
            spread_text([100 * s.accuracy for s in of], ".1f"),
            spread_text([s.ece for s in of], ".3f"), f"{accuracy:.1f}", f"{error:.3f}",
            spread_text(pace, ".1f"),
        ))  # fmt: skip
    header = (
        "optimizer", "method", "seeds", "best step", "test accuracy %", "test ECE",
        "paper: accuracy", "paper: ECE", "ms a step",
    )  # fmt: skip
    note = (
        "At the measured step of least validation loss (NLL), ECE of 15 bins, mean ± standard "
        "deviation over seeds. Inputs are standardised, and eps, step and input gradient are taken "
        "in that space. The time of a step is that of runs side by side, where they were."
    )
    return Table("CalMO, ResNet-20", header, tuple(rows), note)


def improved(setting: Setting, name: str, plain: list[Scores], calmo: list[Scores]) -> Claim:
    """Judge: lower test ECE at no lower accuracy, by the means over seeds."""
    says = f"CalMO with {name}: lower test ECE at no lower accuracy"
    if not plain or not calmo:
        return unrun(says)[0]
    (a, _), (b, _) = (mean_and_spread([s.accuracy for s in of]) for of in (plain, calmo))
    (e, _), (f, _) = (mean_and_spread([s.ece for s in of]) for of in (plain, calmo))
    told = [paper.CALMO[name, method] for method in ("CE", "CalMO")]
    found = (
        f"{100 * a:.1f} % / {e:.3f} -> {100 * b:.1f} % / {f:.3f} (n = {len(plain)}, {len(calmo)})"
    )
    wanted = " -> ".join(f"{accuracy:.1f} % / {error:.3f}" for accuracy, error in told)
    runs = sum(len(runs_of(setting, (name, method))) for method in ("CE", "CalMO"))
    return judged(
        says, found, wanted, f < e and b >= a, "ours: by the means over seeds", setting.elsewhere,
        lacking(len(plain) + len(calmo), runs),
    )  # fmt: skip
