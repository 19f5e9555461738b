"""Figures 1, 2 and A1-A17 of the paper from run folders, and what each one shows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toosure.config import RunConfig
from toosure.recipes import drawings
from toosure.recipes.drawings import Column, Spread
from toosure.recipes.recipe import Drawing, Setting, Shelf
from toosure.recipes.series import mean_and_spread
from toosure.recipes.too_sharp import certificates, paper, rise_and_fall, sweeps, table1
from toosure.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PANELS = ("loss", "accuracy", "ece", "margin_q50", "gn_sharpness")
MAIN = ("loss", "accuracy", "ece", "gn_sharpness")
SHORT = ("loss", "ece", "gn_sharpness")


def labelled(shelf: Shelf, configs: Sequence[RunConfig], labels: Sequence[str]) -> dict[str, Run]:
    """Return the runs there are, by label."""
    pairs = zip(labels, configs, strict=True)
    return {label: run for label, config in pairs if (run := shelf.run(config)) is not None}


def column(setting: Setting, shelf: Shelf, name: str) -> dict[str, Run]:
    """Return the runs of a column of Table 1, labelled by their learning rate."""
    rates = [f"lr {rate}" for rate in sweeps.columns(setting)[name].rates]
    return labelled(shelf, sweeps.column(setting, name, setting.first), rates)


def both_splits(runs: dict[str, Run]) -> list[Column]:
    return [Column("training", runs), Column("validation", runs, "val")]


def of_figure_1(setting: Setting, shelf: Shelf) -> list[Drawing]:
    """Return Figure 1: GD beside SGD."""
    columns = [Column(name, column(setting, shelf, name)) for name in rise_and_fall.NAMES]
    columns = [each for each in columns if each.runs]
    return [
        Drawing("fig1", "GD and SGD: ECE follows sharpness (Figure 1)",
                "Training split. Both rise, peak about together, and fall. Dashed: 2 / lr.",
                lambda: drawings.trajectories(columns, MAIN)),
    ]  # fmt: skip


def of_table_1(setting: Setting, shelf: Shelf) -> list[Drawing]:
    """Return the portraits A1 (A8) and an optimizer each, A2 to A6 (A9 to A13)."""
    runs = {name: column(setting, shelf, name) for name in sweeps.columns(setting)}
    runs = {name: of for name, of in runs.items() if of}
    drawn = [
        *(
            Drawing(f"portraits-{split}",
                    f"ECE against sharpness, {split} split{numbered(setting, 'A1', 'A8')}",
                    "A dot at the start, a cross at the end; colours are learning rates, in the "
                    "order of the table of settings. Paths go on below .01 points.",
                    lambda split=split: drawings.portraits(  # type: ignore[misc]
                        [Column(n, of, split) for n, of in runs.items()]))
            for split in ("train", "val")
        ),
        Drawing("table1", "Table 1 as a picture", "r with sharpness, ours beside the paper's.",
                lambda: correlations(setting, shelf)),
    ]  # fmt: skip
    return drawn + [every_panel(setting, name, of) for name, of in runs.items()]


def numbered(setting: Setting, *figures: str) -> str:
    """Return the paper's number of a figure: the first for CIFAR-10, the second for CIFAR-100."""
    which = {"cifar10": 0, "cifar100": 1}[setting.data]
    return "" if setting.quick or which >= len(figures) else f" (Figure {figures[which]})"


def every_panel(setting: Setting, name: str, runs: dict[str, Run]) -> Drawing:
    """Return an optimizer's own figure, training beside validation."""
    return Drawing(
        f"trajectory-{name.lower()}",
        f"{name} along training{numbered(setting, *paper.TRAJECTORIES.get(name, ()))}",
        "Left training, right validation, a colour a learning rate.",
        lambda: drawings.trajectories(both_splits(runs), PANELS),
    )  # fmt: skip


def correlations(setting: Setting, shelf: Shelf) -> "Figure":
    """Draw Table 1: our mean r of train and test ECE beside the paper's."""
    found = table1.couplings(setting, shelf)
    names = list(sweeps.columns(setting))
    series = []
    for row in ("train ECE", "test ECE"):
        ours = [mean_and_spread(table1.rs(table1.of_first_seed(found[row][n]))) for n in names]
        told = [paper.TABLE_1[row][n] for n in names]
        for who, pairs in (("ours", ours), ("the paper", told)):
            series.append(Spread(f"{row}, {who}", *zip(*pairs, strict=True)))
    return drawings.compared(names, series, "r with sharpness")


def of_bulk(setting: Setting, shelf: Shelf) -> list[Drawing]:
    """Return Figure 2, BulkSGD, and the optimizers beside each other."""
    configs = sweeps.bulk(setting)
    rates = list(dict.fromkeys(rate for rate, _ in configs))
    columns = [
        Column(f"lr {rate}", {f"k = {k}": run for (r, k), c in configs.items()
                              if r == rate and (run := shelf.run(c, diverged=True)) is not None})
        for rate in rates
    ]  # fmt: skip
    columns = [each for each in columns if each.runs]
    together = compared_optimizers(setting, shelf)
    beside = f"; BulkSGD at {rates[0]} with k = 1" if "BulkSGD" in together else ""
    drawn = [
        Drawing("hypotheses", "Flat minima or flat directions?",
                f"One learning rate each, the last but one of its column{beside}.",
                lambda: drawings.trajectories([Column("training", together)], SHORT)),
    ]  # fmt: skip
    if not columns:
        return drawn if together else []
    every = {f"{each.title}, {k}": run for each in columns for k, run in each.runs.items()}
    return [
        Drawing("fig2", "BulkSGD without its 1, 3, 5 sharpest directions (Figure 2)",
                "Training split. Oscillations, and a sharpness other optimizers never reach.",
                lambda: drawings.trajectories(columns, MAIN)),
        *drawn,
        every_panel(setting, "BulkSGD", every),
    ]  # fmt: skip


def compared_optimizers(setting: Setting, shelf: Shelf) -> dict[str, Run]:
    """Return one run of each optimizer: its third learning rate of four, and BulkSGD's first."""
    found: dict[str, Run | None] = {}
    for name in sweeps.columns(setting):
        found[name] = shelf.run(sweeps.column(setting, name, setting.first)[-2])
    bulk = next(config for (_, k), config in sweeps.bulk(setting).items() if k == 1)
    found["BulkSGD"] = shelf.run(bulk, diverged=True)
    return {name: run for name, run in found.items() if run is not None}


def of_mse(setting: Setting, shelf: Shelf) -> list[Drawing]:
    """Return Figures A16 and A17: trajectories and reliability diagrams under squared error."""
    runs = {}
    for name, configs in sweeps.mse(setting).items():
        rates = [f"lr {rate}" for rate in sweeps.columns(setting)[name].rates]
        runs[name] = labelled(shelf, configs, rates)
    runs = {name: of for name, of in runs.items() if of}
    made = [
        Drawing(f"mse-{name.lower()}",
                f"Squared error, {name}{numbered(setting, *paper.SQUARED[name])}",
                "Neither ECE nor sharpness decays.",
                lambda of=of: drawings.trajectories(both_splits(of), PANELS))  # type: ignore[misc]
        for name, of in runs.items()
    ]  # fmt: skip
    columns = [Column(f"{n}, {t}", of, s) for n, of in runs.items()
               for t, s in (("training", "train"), ("validation", "val"))]  # fmt: skip
    if columns:
        made.append(Drawing("mse-reliability", "Reliability under squared error (as in A16, A17)",
                            "At the end, at the first learning rate: far above the line.",
                            lambda: drawings.reliabilities(columns)))  # fmt: skip
    return made


def of_certificates(setting: Setting, shelf: Shelf) -> list[Drawing]:
    """Return the slack of the theorems along the run."""
    run = shelf.run(sweeps.certified(setting))
    if run is None:
        return []
    keys = {"train/ece": "ECE", "train/gn_sharpness": "sharpness"}
    wanted = ("4.1 (i)", "4.1 (ii)", "4.2 (i) lower", "4.2 (i) upper")
    keys |= {
        certificates.PREFIX + n: f"slack of {n}" for n in certificates.told(run) if n in wanted
    }
    apart = run.columns["step"][certificates.separated(run)]
    start = float(apart[0]) if len(apart) else None
    return [
        Drawing("certificates", "Slack of Theorems 4.1 and 4.2 along a run",
                "Right side minus left side. From the dotted line on every training point is "
                "right, and Theorem 4.2 applies.", lambda: drawings.slacks(run, keys, start)),
    ]  # fmt: skip
