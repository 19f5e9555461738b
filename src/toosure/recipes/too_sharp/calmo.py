"""CalMO (version 1 of the paper): ResNet-20 with and without it, at the best step."""

from typing import Any

from toosure.config import RunConfig
from toosure.recipes.benchmark.scored_rows import Row, ScoredRow, missing_in, score_rows
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
    single_run,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text
from toosure.recipes.too_sharp import paper

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
ScoredCells = dict[Cell, ScoredRow]
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
    """Return a cell's runs: three seeds of SGD and Muon with and without CalMO, else one."""
    if cell in MAIN and not setting.quick:
        return [config(setting, cell, seed) for seed in setting.seeds_or(0, 1, 2)]
    return [config(setting, cell, setting.first_seed)]


def configs(setting: Setting, cells: tuple[Cell, ...] = SGD) -> list[RunConfig]:
    """Return the runs of several cells; none on data other than CIFAR-10."""
    if setting.data != "cifar10":
        return []
    return [each for cell in cells for each in cell_configs(setting, cell)]


# -- findings -------------------------------------------------------------------------------


def findings(setting: Setting, store: RunStore, cells: tuple[Cell, ...] = SGD) -> Findings:
    """Return accuracy and ECE at the best step, and the claims on CalMO."""
    scored = score_cells(setting, store, cells)
    claims = [
        improvement_claim(setting, name, scored[name, "CE"], scored[name, "CalMO"])
        for name in dict.fromkeys(name for name, _ in cells)
    ]
    return Findings(claims, [table(scored)], unrounded(scored))


def score_cells(setting: Setting, store: RunStore, cells: tuple[Cell, ...]) -> ScoredCells:
    """Score the test predictions at each run's best step, in the order of the paper's table."""
    rows = {}
    for cell in CELLS:
        if cell in cells:
            own = cell_configs(setting, cell)
            rows[cell] = Row(" ".join(cell), tuple(own), len(own))

    scored, _ = score_rows(setting, store, list(rows.values()), save_examples=False)
    return dict(zip(rows, scored, strict=True))


def unrounded(cells: ScoredCells) -> dict[str, Any]:
    """Return every score as plain dictionaries, for the JSON file."""
    return {
        row.name: [{**record.test, "step": record.step} for record in row.records]
        for row in cells.values()
    }


def improvement_claim(setting: Setting, name: str, plain: ScoredRow, calmo: ScoredRow) -> Claim:
    """Judge whether CalMO has a lower mean test ECE at no lower accuracy."""
    statement = f"CalMO with {name}: lower test ECE at no lower accuracy"
    if not plain.records or not calmo.records:
        return claim_without_runs(statement)

    plain_accuracy = plain.mean("accuracy")
    calmo_accuracy = calmo.mean("accuracy")
    plain_ece = plain.mean("ece")
    calmo_ece = calmo.mean("ece")

    n = f"(n = {len(plain.records)}, {len(calmo.records)})"
    theirs = [paper.CALMO[name, method] for method in ("CE", "CalMO")]
    return judge(
        statement,
        found=f"{100 * plain_accuracy:.1f} % / {plain_ece:.3f} -> "
        f"{100 * calmo_accuracy:.1f} % / {calmo_ece:.3f} {n}",
        paper=" -> ".join(f"{accuracy:.1f} % / {ece:.3f}" for accuracy, ece in theirs),
        holds=calmo_ece < plain_ece and calmo_accuracy >= plain_accuracy,
        rule="ours: by the means over seeds",
        reasons=[
            setting.why_not_judged,
            missing_in([plain, calmo]),
            single_run(len(plain.records), len(calmo.records)),
        ],
    )


def table(cells: ScoredCells) -> Table:
    """Lay out one row per cell, the paper's figures beside ours."""
    rows = []
    for cell, row in cells.items():
        if not row.records:
            continue
        accuracy, ece = paper.CALMO[cell]
        steps = [r.config.steps if r.step is None else r.step for r in row.records]
        step_times = [1000 * r.training_seconds / r.config.steps for r in row.records]
        rows.append(
            (
                *cell,
                str(len(row.records)),
                mean_std_text(steps, ".0f"),
                mean_std_text(row.points("accuracy"), ".1f"),
                mean_std_text(row.values("ece"), ".3f"),
                f"{accuracy:.1f}",
                f"{ece:.3f}",
                mean_std_text(step_times, ".1f"),
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
