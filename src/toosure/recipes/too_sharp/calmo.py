"""CalMO (version 1 of the paper): ResNet-20 with and without it, judged at its best step."""

from typing import Any

from toosure.config import RunConfig
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.score_files import score_files
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
    missing_runs,
    single_run,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_spread, spread_text
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
CellRecords = dict[Cell, list[Record]]  # one entry of the list per seed
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
    records = read_cells(setting, store, cells)
    claims = [
        improvement_claim(setting, name, records[name, "CE"], records[name, "CalMO"])
        for name in dict.fromkeys(name for name, _ in cells)
    ]
    return Findings(claims, [table(records)], unrounded(records))


def read_cells(setting: Setting, store: RunStore, cells: tuple[Cell, ...]) -> CellRecords:
    """Score the test predictions at each run's best step, in the order of the paper's table.

    Runs whose scores are kept need no folder.
    """
    files = score_files(setting)
    files.add(store.runs(configs(setting, cells)), keep_examples=False)
    return {
        cell: [
            files.records[each.name]
            for each in cell_configs(setting, cell)
            if each.name in files.records
        ]
        for cell in CELLS
        if cell in cells
    }


def unrounded(records: CellRecords) -> dict[str, Any]:
    """Return every score as plain dictionaries, for the JSON file."""
    return {
        " ".join(cell): [{**each.test, "step": each.step} for each in of]
        for cell, of in records.items()
    }


def mean_of(records: list[Record], score: str) -> float:
    """Return the mean of a score of the test images over seeds."""
    return mean_and_spread([each.test[score] for each in records])[0]


def improvement_claim(
    setting: Setting, name: str, plain: list[Record], calmo: list[Record]
) -> Claim:
    """Judge: lower test ECE at no lower accuracy, by the means over seeds."""
    says = f"CalMO with {name}: lower test ECE at no lower accuracy"
    if not plain or not calmo:
        return claim_without_runs(says)

    plain_accuracy = mean_of(plain, "accuracy")
    calmo_accuracy = mean_of(calmo, "accuracy")
    plain_ece = mean_of(plain, "ece")
    calmo_ece = mean_of(calmo, "ece")

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


def table(records: CellRecords) -> Table:
    """Lay out one row per cell, the paper's figures beside ours."""
    rows = []
    for cell, of in records.items():
        if not of:
            continue
        accuracy, ece = paper.CALMO[cell]
        rows.append(
            (
                *cell,
                str(len(of)),
                spread_text(
                    [each.config.steps if each.step is None else each.step for each in of], ".0f"
                ),
                spread_text([100 * each.test["accuracy"] for each in of], ".1f"),
                spread_text([each.test["ece"] for each in of], ".3f"),
                f"{accuracy:.1f}",
                f"{ece:.3f}",
                spread_text(
                    [1000 * each.training_seconds / each.config.steps for each in of], ".1f"
                ),
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
