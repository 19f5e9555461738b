"""CalMO (version 1 of the paper): ResNet-20 with and without it, judged at its best step."""

from typing import Any

from toosure.config import RunConfig
from toosure.recipes.prediction_scores import Scores, scores_of_runs, training_seconds
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claims_without_runs,
    judge,
    missing_runs,
    single_run,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_spread, spread_text
from toosure.recipes.too_sharp import paper
from toosure.runs import Run

OPTIMIZERS = {
    "SGD": "sgd:lr=0.01,momentum=0.9",
    "AdamW": "adamw:lr=0.001",
    "Muon": "muon:lr=0.01",
    "SAM": "sam:base=sgd,lr=0.01,momentum=0.9,rho=0.05",
}
METHODS: dict[str, dict[str, str]] = {
    "CE": {},
    "smoothness only": {"objective": "calmo:robust=0"},
    "robustness only": {"objective": "calmo:smooth=0"},
    "CalMO": {"objective": "calmo"},
    "label smoothing": {"loss": "label_smoothing"},
    "focal": {"loss": "focal"},
}
Cell = tuple[str, str]  # optimizer, method
CellScores = dict[Cell, list[Scores]]  # one entry of the list per seed
CELLS: tuple[Cell, ...] = tuple((name, method) for name in OPTIMIZERS for method in METHODS)
# The cells with three seeds, which are judged one by one.
SGD: tuple[Cell, ...] = (("SGD", "CE"), ("SGD", "CalMO"))
MUON: tuple[Cell, ...] = (("Muon", "CE"), ("Muon", "CalMO"))
MAIN = (*MUON, *SGD)


# -- runs -----------------------------------------------------------------------------------


def config(setting: Setting, cell: Cell, seed: int) -> RunConfig:
    """Return a run: 45,000 / 5,000 images, batch 128, 10,000 steps, no augmentation."""
    size: dict[str, Any] = {"data": "cifar10", "steps": 10_000, "batch": 128, "every": 250}
    if setting.quick:
        data = "digits:train=128,val=100,test=200"
        size = {"data": data, "steps": 6, "batch": 32, "every": 3}

    optimizer, method = cell
    return RunConfig.of(
        {
            **size,
            "optimizer": OPTIMIZERS[optimizer],
            **METHODS[method],
            "measure": ("best",),
            "model": "resnet20",
            "seed": seed,
        }
    )


def cell_configs(setting: Setting, cell: Cell) -> list[RunConfig]:
    """Return a cell's runs: three seeds of SGD and Muon with and without CalMO, one of the rest."""
    if cell in MAIN and not setting.quick:
        return [config(setting, cell, seed) for seed in setting.seeds_or(0, 1, 2)]
    return [config(setting, cell, setting.first_seed)]


def configs(setting: Setting, cells: tuple[Cell, ...] = SGD) -> list[RunConfig]:
    """Return the runs of several cells; there are none on other data than CIFAR-10."""
    if setting.data != "cifar10":
        return []
    return [each for cell in cells for each in cell_configs(setting, cell)]


# -- findings -------------------------------------------------------------------------------


def findings(setting: Setting, store: RunStore, cells: tuple[Cell, ...] = SGD) -> Findings:
    """Return accuracy and ECE at the best step, and whether CalMO calibrates at no cost."""
    runs = read_runs(setting, store, cells)
    scores = read_cells(runs)
    claims = [
        improvement_claim(setting, name, scores[name, "CE"], scores[name, "CalMO"])
        for name in dict.fromkeys(name for name, _ in cells)
    ]
    return Findings(claims, [table(runs, scores)], unrounded(scores))


def read_runs(setting: Setting, store: RunStore, cells: tuple[Cell, ...]) -> dict[Cell, list[Run]]:
    """Return the complete runs of every cell, in the order of the paper's table."""
    ordered = [cell for cell in CELLS if cell in cells]
    return {cell: store.runs(cell_configs(setting, cell)) for cell in ordered}


def read_cells(runs: dict[Cell, list[Run]]) -> CellScores:
    """Score the test predictions at each run's best step."""
    return {cell: scores_of_runs(of) for cell, of in runs.items()}


def unrounded(scores: CellScores) -> dict[str, Any]:
    """Return every score as plain dictionaries, for the JSON file."""
    return {" ".join(cell): [each._asdict() for each in of] for cell, of in scores.items()}


def improvement_claim(
    setting: Setting, name: str, plain: list[Scores], calmo: list[Scores]
) -> Claim:
    """Judge: lower test ECE at no lower accuracy, by the means over seeds."""
    says = f"CalMO with {name}: lower test ECE at no lower accuracy"
    if not plain or not calmo:
        return claims_without_runs(says)[0]

    plain_accuracy, _ = mean_and_spread([each.accuracy for each in plain])
    calmo_accuracy, _ = mean_and_spread([each.accuracy for each in calmo])
    plain_ece, _ = mean_and_spread([each.ece for each in plain])
    calmo_ece, _ = mean_and_spread([each.ece for each in calmo])

    n = f"(n = {len(plain)}, {len(calmo)})"
    theirs = [paper.CALMO[name, method] for method in ("CE", "CalMO")]
    expected = sum(len(cell_configs(setting, (name, method))) for method in ("CE", "CalMO"))
    return judge(
        says,
        found=f"{100 * plain_accuracy:.1f} % / {plain_ece:.3f} -> "
        f"{100 * calmo_accuracy:.1f} % / {calmo_ece:.3f} {n}",
        paper=" -> ".join(f"{accuracy:.1f} % / {ece:.3f}" for accuracy, ece in theirs),
        holds=calmo_ece < plain_ece and calmo_accuracy >= plain_accuracy,
        rule="ours: by the means over seeds",
        unless=[
            setting.why_not_judged,
            missing_runs(len(plain) + len(calmo), expected),
            single_run(len(plain), len(calmo)),
        ],
    )


def table(runs: dict[Cell, list[Run]], scores: CellScores) -> Table:
    """Lay out one row per cell, the paper's figures beside ours."""
    rows = []
    for cell, of in scores.items():
        if not of:
            continue
        accuracy, ece = paper.CALMO[cell]
        step_times = [1000 * training_seconds(run) / run.last["step"] for run in runs[cell]]
        rows.append(
            (
                *cell,
                str(len(of)),
                spread_text([each.step for each in of], ".0f"),
                spread_text([100 * each.accuracy for each in of], ".1f"),
                spread_text([each.ece for each in of], ".3f"),
                f"{accuracy:.1f}",
                f"{ece:.3f}",
                spread_text(step_times, ".1f"),
            )
        )

    header = (
        "optimizer",
        "method",
        "seeds",
        "best step",
        "test accuracy %",
        "test ECE",
        "paper: accuracy",
        "paper: ECE",
        "ms per step",
    )
    note = (
        "At the measured step of least validation loss (NLL), ECE of 15 bins, mean ± standard "
        "deviation over seeds. Inputs are standardised, and eps, step and input gradient are taken "
        "in that space. The time of a step is that of runs side by side, where they were."
    )
    return Table("CalMO, ResNet-20", header, tuple(rows), note)
