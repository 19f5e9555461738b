"""Table 1: how calibration error and sharpness go together along a run, with stricter measures."""

from typing import Any

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import Coupling, coupling, mean_and_spread, pearson, spread_text
from toosure.recipes.too_sharp import paper, sweeps
from toosure.runs import Run

# Row of the table -> calibration error, sharpness, loss held fixed. Test rows pair the test error
# with the sharpness of the test split: with that of the training split they come out negative.
ROWS = {
    "train ECE": ("train/ece", "train/gn_sharpness", "train/loss"),
    "train KCE": ("train/mmce", "train/gn_sharpness", "train/loss"),
    "test ECE": ("val/ece", "val/gn_sharpness", "val/loss"),
    "test KCE": ("val/mmce", "val/gn_sharpness", "val/loss"),
}
OTHER = ("val/ece", "train/gn_sharpness", "val/loss")  # what the test rows do not mean
SHARES = (0.25, 0.5, 0.75, 1.0)
# row -> column -> seed -> rates; None for a run that is not there
Couplings = dict[str, dict[str, dict[int, list[Coupling | None]]]]


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return Table 1 as the paper has it, over seeds, by stricter measures and by length."""
    found = couplings(setting, shelf)
    tables = [main_table(setting, found), strict_table(found), rate_table(setting, found)]
    tables += [length_table(setting, shelf), length_settings(setting)]
    if len(setting.among(0)) > 1:
        tables.insert(1, seed_table(found))
    return Findings(claims(setting, found), tables, values(found))


def couplings(setting: Setting, shelf: Shelf) -> Couplings:
    """Return the couplings of every row, column, seed and learning rate."""
    runs = {
        name: {s: [*map(shelf.run, sweeps.column(setting, name, s))] for s in setting.among(0)}
        for name in sweeps.columns(setting)
    }
    return {
        row: {
            name: {s: [measured(run, keys) for run in of] for s, of in by_seed.items()}
            for name, by_seed in runs.items()
        }
        for row, keys in {**ROWS, "test ECE, train sharpness": OTHER}.items()
    }


def measured(run: Run | None, keys: tuple[str, str, str]) -> Coupling | None:
    if run is None:
        return None
    error, sharpness, loss = (run.columns[key] for key in keys)
    return coupling(error, sharpness, loss)


def of_first_seed(by_seed: dict[int, list[Coupling | None]]) -> list[Coupling | None]:
    return by_seed[min(by_seed)]


def rs(found: list[Coupling | None], field: str = "pearson") -> list[float]:
    return [getattr(each, field) for each in found if each is not None]


def claims(setting: Setting, found: Couplings) -> list[Claim]:
    """Judge each cell of GD, SGD and SAM; report the others."""
    return [
        compared(setting, row, name, of_first_seed(by_seed))
        for row in ROWS
        for name, by_seed in found[row].items()
    ]


def compared(setting: Setting, row: str, name: str, of: list[Coupling | None]) -> Claim:
    """Compare a mean over learning rates with the paper's, within two of its deviations."""
    found = rs(of)
    target, width = paper.TABLE_1[row][name]
    says = f"Table 1: r of {row} and sharpness, {name}"
    if not found:
        return unrun(says)[0]
    away = abs(mean_and_spread(found)[0] - target) / width
    rule = f"{away:.1f} of the paper's standard deviations away"
    reported = f"{rule}; reported only: the paper does not give its settings"
    return judged(
        says, f"{spread_text(found)} (n = {len(found)} rates)", f"{target:.2f} ± {width:.2f}",
        away <= 2, rule, setting.elsewhere, lacking(len(found), len(of)),
        "" if name in paper.JUDGED else reported,
    )  # fmt: skip


def main_table(setting: Setting, found: Couplings) -> Table:
    """Return mean ± standard deviation of r over the learning rates, the paper's below ours."""
    names = list(sweeps.columns(setting))
    rows = []
    for row, columns in found.items():
        rows.append((row, *(spread_text(rs(of_first_seed(columns[n]))) for n in names)))
        if row in ROWS:
            told = (paper.TABLE_1[row][name] for name in names)
            rows.append(("  the paper", *(f"{mean:.2f} ± {sd:.2f}" for mean, sd in told)))
    note = (
        f"Pearson r with Gauss-Newton sharpness over all rows of a run, mean ± standard deviation "
        f"over learning rates, seed {setting.first}. KCE is MMCE (bandwidth 0.4). Test rows "
        "pair the error of the held-out split with the sharpness of that split; the last row shows "
        "what comes of pairing it with the training sharpness."
    )
    return Table("Table 1", ("", *names), tuple(rows), note)


def seed_table(found: Couplings) -> Table:
    """Return the same over seeds: the mean over rates of each seed, mean ± deviation of those."""
    names = list(found["train ECE"])
    rows = tuple(
        (row, *(spread_text([mean_and_spread(rs(of))[0] for of in c[n].values()]) for n in names))
        for row, c in found.items()
    )
    seeds = len(found["train ECE"][names[0]])
    note = (
        f"Mean over learning rates of each of {seeds} seeds (start and batches), then over those."
    )
    return Table("Table 1 over seeds", ("", *names), rows, note)


def strict_table(found: Couplings) -> Table:
    """Return what is left when trends are taken away."""
    rows = []
    for row in ("train ECE", "test ECE"):
        for name, by_seed in found[row].items():
            of = of_first_seed(by_seed)
            if not rs(of):
                continue
            low, high = (mean_and_spread(rs(of, end))[0] for end in ("low", "high"))
            fields = ("pearson", "spearman", "differences", "partial")
            cells = (spread_text(rs(of, field)) for field in fields)
            rows.append((row, name, *cells, f"{low:.2f} to {high:.2f}"))
    note = (
        "r between two series that both rise and fall is weak evidence. Beside it: Spearman's rank "
        "correlation; r of the changes from one row to the next; partial r with the loss of the "
        "same split held fixed; the 95 % interval of r by circular block bootstrap (blocks of "
        "sqrt(n) rows, 2,000 resamples), its ends averaged over learning rates. Where r is high "
        "and that of changes is not, two slow humps go together, not what happens row by row."
    )
    header = ("", "", "r", "Spearman", "r of changes", "partial r", "95 % of r")
    return Table("Stricter than r", header, tuple(rows), note)


def rate_table(setting: Setting, found: Couplings) -> Table:
    """Return r of every single run."""
    rows = []
    for name, series in sweeps.columns(setting).items():
        for i, rate in enumerate(series.rates):
            cells = []
            for row in ROWS:
                of = of_first_seed(found[row][name])[i]
                cells.append("–" if of is None else f"{of.pearson:.2f}")
            rows.append((name, rate, *cells))
    return Table("Table 1, run by run", ("", "learning rate", *ROWS), tuple(rows))


def length_table(setting: Setting, shelf: Shelf) -> Table:
    """Return r over the first part of the runs: how far the length alone moves it."""
    rows = []
    for row in ("train ECE", "test ECE"):
        for name in sweeps.columns(setting):
            runs = shelf.runs(sweeps.column(setting, name, setting.first))
            cells = (
                spread_text([r_until(run, ROWS[row], share) for run in runs]) for share in SHARES
            )
            rows.append((row, name, *cells))
    header = ("", "", *(f"first {share:.0%}" for share in SHARES))
    note = (
        "Pearson r over the first part of each run's steps, mean ± standard deviation over rates. "
        "The paper does not give its lengths; this is how much they matter."
    )
    return Table("r against the length of a run", header, tuple(rows), note)


def r_until(run: Run, keys: tuple[str, str, str], share: float) -> float:
    columns = run.columns
    kept = columns["step"] <= share * columns["step"][-1]
    a, b = columns[keys[0]][kept], columns[keys[1]][kept]
    finite = np.isfinite(a) & np.isfinite(b)
    return pearson(a[finite], b[finite])


def length_settings(setting: Setting) -> Table:
    """State the length and the stopping rule of every column."""
    rows = tuple(
        (name, series.word.format("LR"), ", ".join(series.rates), f"{series.steps:,}",
         "full" if series.batch is None else str(series.batch))
        for name, series in sweeps.columns(setting).items()
    )  # fmt: skip
    every = sweeps.table_1(setting)[0].every
    note = (
        f"Every run is stopped after its number of steps, whatever it has reached, and measured at "
        f"step 0 and every {every} steps. Data {sweeps.images(setting)}, model "
        f"{sweeps.network(setting)}, cross-entropy, constant rate, float32."
    )
    return Table("Settings of Table 1", ("", "word", "LR", "steps", "batch"), rows, note)


def recorded(found: Coupling | None) -> dict[str, Any] | None:
    return None if found is None else found._asdict()


def values(found: Couplings) -> dict[str, Any]:
    """Return every coupling, unrounded."""
    return {
        "couplings": {
            row: {
                name: {str(seed): [recorded(each) for each in of] for seed, of in by_seed.items()}
                for name, by_seed in columns.items()
            }
            for row, columns in found.items()
        }
    }
