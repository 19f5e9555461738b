"""Figures 1, 2 and A1-A17 of the paper, drawn from run folders."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from toosure.config import RunConfig
from toosure.recipes import drawings
from toosure.recipes.drawings import Column, MeanSeries
from toosure.recipes.recipe import Drawing, Setting
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_std
from toosure.recipes.too_sharp import (
    batch_sharpness,
    certificates,
    correlations,
    paper,
    rise_and_fall,
    sweeps,
)
from toosure.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PANELS = ("loss", "accuracy", "ece", "margin_q50", "gn_sharpness")
MAIN_PANELS = ("loss", "accuracy", "ece", "gn_sharpness")
FEW_PANELS = ("loss", "ece", "gn_sharpness")
BATCH_PANELS = ("ece", "gn_sharpness", "batch_sharpness")
DRAWN_STATEMENTS = ("4.1 (i)", "4.1 (ii)", "4.2 (i) lower", "4.2 (i) upper")


# -- runs, and the pieces that several figures share -----------------------------------------


def labelled_runs(
    store: RunStore, configs: Sequence[RunConfig], labels: Sequence[str]
) -> dict[str, Run]:
    """Return the available runs by label."""
    pairs = zip(labels, configs, strict=True)
    return {label: run for label, config in pairs if (run := store.run(config)) is not None}


def rate_labels(setting: Setting, name: str) -> list[str]:
    return [f"lr {rate}" for rate in sweeps.optimizers(setting)[name].rates]


def runs_by_rate(setting: Setting, store: RunStore, name: str) -> dict[str, Run]:
    """Return the runs of a column of Table 1 by learning rate."""
    configs = sweeps.rate_configs(setting, name, setting.first_seed)
    return labelled_runs(store, configs, rate_labels(setting, name))


def both_splits(runs: dict[str, Run], prefix: str = "") -> list[Column]:
    return [Column(f"{prefix}training", runs), Column(f"{prefix}validation", runs, "val")]


def paper_number(setting: Setting, *numbers: str) -> str:
    """Return the paper's number of a figure: the first on CIFAR-10, the second on CIFAR-100."""
    which = {"cifar10": 0, "cifar100": 1}[setting.data]
    if setting.quick or which >= len(numbers):
        return ""
    return f" (Figure {numbers[which]})"


def optimizer_drawing(setting: Setting, name: str, runs: dict[str, Run]) -> Drawing:
    """Return an optimizer's own figure, training beside validation."""
    number = paper_number(setting, *paper.TRAJECTORIES.get(name, ()))
    return Drawing(
        f"trajectory-{name.lower()}",
        f"{name} along training{number}",
        "Left training, right validation, one colour per learning rate.",
        partial(drawings.trajectories, both_splits(runs), PANELS),
    )


# -- Figure 1 and Table 1 -------------------------------------------------------------------


def figure_1_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figure 1: GD beside SGD."""
    columns = [
        Column(name, runs_by_rate(setting, store, name)) for name in rise_and_fall.OPTIMIZERS
    ]
    columns = [column for column in columns if column.runs]
    drawing = Drawing(
        "fig1",
        "GD and SGD: ECE follows sharpness (Figure 1)",
        rise_and_fall.caption([run for column in columns for run in column.runs.values()]),
        partial(drawings.trajectories, columns, MAIN_PANELS),
    )
    return [drawing]


def table_1_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return the portraits A1 (A8), Table 1 as a picture, A2 to A6 (A9 to A13), and A15."""
    groups = {name: runs_by_rate(setting, store, name) for name in sweeps.optimizers(setting)}
    groups = {name: runs for name, runs in groups.items() if runs}

    portraits = [
        Drawing(
            f"portraits-{split}",
            f"ECE against sharpness, {split} split{paper_number(setting, 'A1', 'A8')}",
            "A dot at the start, a cross at the end; colours are learning rates, in the order of "
            "the table of settings. Paths go on below .01 points.",
            partial(
                drawings.portraits, [Column(name, runs, split) for name, runs in groups.items()]
            ),
        )
        for split in ("train", "val")
    ]
    table = Drawing(
        "table1",
        "Table 1 as a picture",
        "r with sharpness, ours beside the paper's."
        if setting.on_paper_data
        else "r with sharpness.",
        partial(draw_correlations, setting, store),
    )
    trajectories = [optimizer_drawing(setting, name, runs) for name, runs in groups.items()]
    return [*portraits, table, *trajectories, *sam_and_muon(setting, store)]


def sam_and_muon(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figure A15: SAM beside Muon."""
    columns = [Column(name, runs_by_rate(setting, store, name)) for name in ("SAM", "Muon")]
    if not all(column.runs for column in columns):
        return []
    return [
        Drawing(
            "sam-muon",
            f"SAM beside Muon{paper_number(setting, 'A15')}",
            "Training split, one colour per learning rate of its column.",
            partial(drawings.trajectories, columns, MAIN_PANELS),
        )
    ]


def draw_correlations(setting: Setting, store: RunStore) -> "Figure":
    """Draw Table 1: our mean r of train and test ECE beside the paper's."""
    by_row = correlations.read_correlations(setting, store)
    names = list(sweeps.optimizers(setting))
    series = []
    for row in ("train ECE", "test ECE"):
        rates = [correlations.of_first_seed(by_row[row][name]) for name in names]
        ours = [mean_and_std(correlations.over_rates(each)) for each in rates]
        theirs = [paper.TABLE_1[row][name] for name in names]
        shown = {"ours": ours, "the paper": theirs} if setting.on_paper_data else {"ours": ours}
        for source, pairs in shown.items():
            means, deviations = zip(*pairs, strict=True)
            series.append(MeanSeries(f"{row}, {source}", means, deviations))
    return drawings.compare_means(names, series, "r with sharpness")


# -- BulkSGD --------------------------------------------------------------------------------


def bulk_sgd_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figure 2, the figure of BulkSGD, and one run of each optimizer side by side."""
    columns = bulk_columns(store, sweeps.bulk_sgd(setting))
    one_each = one_run_per_optimizer(setting, store)

    first_rate, _ = next(iter(sweeps.bulk_sgd(setting)))
    bulk_note = f"; BulkSGD at {first_rate} with k = 1" if "BulkSGD" in one_each else ""
    comparison = Drawing(
        "hypotheses",
        "Flat minima or flat directions?",
        f"One learning rate each, the last but one of its column{bulk_note}.",
        partial(drawings.trajectories, [Column("training", one_each)], FEW_PANELS),
    )
    if not columns:
        return [comparison] if one_each else []

    figure_2 = Drawing(
        "fig2",
        "BulkSGD without its 1, 3, 5 sharpest directions (Figure 2)",
        "Training split. Oscillations, and a sharpness other optimizers never reach.",
        partial(drawings.trajectories, columns, MAIN_PANELS),
    )
    every = runs_of_columns(columns)
    return [figure_2, comparison, optimizer_drawing(setting, "BulkSGD", every)]


def bulk_columns(store: RunStore, bulk: sweeps.BulkRuns) -> list[Column]:
    """Return the available BulkSGD runs, one column per learning rate."""
    by_rate: dict[str, dict[str, Run]] = {}
    for (rate, k), config in bulk.items():
        run = store.run(config, diverged=True)
        if run is not None:
            by_rate.setdefault(rate, {})[f"k = {k}"] = run
    return [Column(f"lr {rate}", runs) for rate, runs in by_rate.items()]


def runs_of_columns(columns: Sequence[Column]) -> dict[str, Run]:
    """Return the runs of all columns, labelled by column and label."""
    return {
        f"{column.title}, {label}": run for column in columns for label, run in column.runs.items()
    }


def one_run_per_optimizer(setting: Setting, store: RunStore) -> dict[str, Run]:
    """Return one run of each optimizer: its last but one learning rate, and k = 1 of BulkSGD."""
    runs: dict[str, Run | None] = {}
    for name in sweeps.optimizers(setting):
        runs[name] = store.run(sweeps.rate_configs(setting, name, setting.first_seed)[-2])
    bulk = next(config for (_, k), config in sweeps.bulk_sgd(setting).items() if k == 1)
    runs["BulkSGD"] = store.run(bulk, diverged=True)
    return {name: run for name, run in runs.items() if run is not None}


# -- squared error and theorems -------------------------------------------------------------


def mse_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figures A16 and A17: trajectories and reliability diagrams under squared error."""
    labels = [f"lr {rate}" for rate in sweeps.squared_error_rates(setting)]
    groups = {
        name: labelled_runs(store, configs, labels)
        for name, configs in sweeps.squared_error(setting).items()
    }
    groups = {name: runs for name, runs in groups.items() if runs}
    if not groups:
        return []

    trajectories = [
        Drawing(
            f"mse-{name.lower()}",
            f"Squared error, {name}{paper_number(setting, *paper.SQUARED_ERROR[name])}",
            "Neither ECE nor sharpness decays.",
            partial(drawings.trajectories, both_splits(runs), PANELS),
        )
        for name, runs in groups.items()
    ]
    columns = [column for name, runs in groups.items() for column in both_splits(runs, f"{name}, ")]
    reliability = Drawing(
        "mse-reliability",
        "Reliability under squared error (as in A16, A17)",
        "At the end, at the first learning rate: far above the line.",
        partial(drawings.reliabilities, columns),
    )
    return [*trajectories, reliability]


def batch_sharpness_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return ECE, Gauss-Newton and batch sharpness along SGD, one above the other."""
    configs = sweeps.batch_sharpness(setting)
    runs = labelled_runs(store, configs, rate_labels(setting, "SGD")[: len(configs)])
    if not runs:
        return []
    drawing = Drawing(
        "batch",
        "ECE, sharpness and batch sharpness along SGD",
        batch_sharpness.caption(list(runs.values())),
        partial(drawings.trajectories, [Column("training", runs)], BATCH_PANELS),
    )
    return [drawing]


def certificate_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return the slack of the theorems along the run."""
    run = store.run(sweeps.certified_run(setting))
    if run is None:
        return []

    labels = {"train/ece": "ECE", "train/gn_sharpness": "sharpness"}
    for name in certificates.clean_statements(run):
        if name in DRAWN_STATEMENTS:
            labels[certificates.PREFIX + name] = f"slack of {name}"

    separated = run.columns["step"][certificates.is_separated(run)]
    start = float(separated[0]) if len(separated) else None
    drawing = Drawing(
        "certificates",
        "Slack of Theorems 4.1 and 4.2 along a run",
        "Right side minus left side. From the dotted line on every training point is right, and "
        "Theorem 4.2 applies.",
        partial(drawings.slacks, run, labels, start),
    )
    return [drawing]
