"""Settings that the paper does not give: rates of AdamW and Muon, batches and input layer.

The rule of choice was written before the runs. Of an optimizer's candidates it chooses the one
whose mean r of test ECE over learning rates is nearest to the paper's, in standard deviations of
the paper. For Muon, whose peak ECE is substantially lower than GD's and SGD's in the paper,
candidates with such a peak come first. Table 1 uses `sweeps.CHOSEN`. If the rule chooses another
candidate, the note below the table says so, and Table 1 must be made again.
"""

from typing import NamedTuple

from toosure.config import RunConfig
from toosure.recipes.recipe import Findings, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_std, mean_std_text
from toosure.recipes.too_sharp import paper, sweeps
from toosure.recipes.too_sharp.correlations import ROWS, correlate_run, over_rates
from toosure.recipes.too_sharp.hypotheses import SUBSTANTIAL
from toosure.recipes.too_sharp.summaries import mean_peak, peak_ece
from toosure.runs import Run

TARGET_ROW = "test ECE"
LOWER_PEAK = ("Muon",)  # optimizers whose peak the paper has substantially below GD's and SGD's


class Fit(NamedTuple):
    """How one candidate compares with the paper."""

    optimizer: str
    candidate: str
    complete: bool  # whether every learning rate has a run
    correlations: dict[str, list[float]]  # by row of Table 1, one per run
    peaks: list[float]
    distance: float  # of the mean r of test ECE, in the paper's standard deviations
    has_low_peak: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """The key that the choice minimises: a peak that is too high, then the distance."""
        misses_peak = self.optimizer in LOWER_PEAK and not self.has_low_peak
        return misses_peak, self.distance


def configs(setting: Setting) -> list[RunConfig]:
    """Return the runs of every candidate, then of GD and SGD, whose peaks set the bar for Muon."""
    columns = [
        column for by_name in sweeps.candidates(setting).values() for column in by_name.values()
    ]
    columns += [sweeps.optimizers(setting)[name] for name in ("GD", "SGD")]
    return [
        config
        for column in columns
        for config in sweeps.column_configs(setting, column, setting.first_seed)
    ]


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return one table of all candidates, with the choice of the rule."""
    fits = read_fits(setting, store)
    chosen = {
        name: best_fit(fits, name) if setting.on_paper_data else ""
        for name in sweeps.candidates(setting)
    }
    values = {f"{fit.optimizer}, {fit.candidate}": fit._asdict() for fit in fits}
    return Findings([], [table(setting, fits, chosen)], values)


def read_fits(setting: Setting, store: RunStore) -> list[Fit]:
    """Compare every candidate that has a complete run with the paper."""
    threshold = peak_threshold(setting, store)
    fits = []
    for name, by_candidate in sweeps.candidates(setting).items():
        for candidate, column in by_candidate.items():
            expected = sweeps.column_configs(setting, column, setting.first_seed)
            runs = store.runs(expected)
            if runs:
                fits.append(fit_of(name, candidate, runs, len(expected), threshold))
    return fits


def peak_threshold(setting: Setting, store: RunStore) -> float:
    """Return the mean peak that counts as substantially lower than GD's and SGD's."""
    seed = setting.first_seed
    groups = [store.runs(sweeps.rate_configs(setting, name, seed)) for name in ("GD", "SGD")]
    means = [mean_peak(runs) for runs in groups if runs]
    return SUBSTANTIAL * min(means) if len(means) == 2 else float("nan")


def fit_of(name: str, candidate: str, runs: list[Run], expected: int, threshold: float) -> Fit:
    """Compare one candidate with the paper."""
    by_row = {
        row: over_rates([correlate_run(run, keys) for run in runs]) for row, keys in ROWS.items()
    }

    target, deviation = paper.TABLE_1[TARGET_ROW][name]
    mean, _ = mean_and_std(by_row[TARGET_ROW])
    return Fit(
        optimizer=name,
        candidate=candidate,
        complete=len(runs) == expected,
        correlations=by_row,
        peaks=[peak_ece(run) for run in runs],
        distance=abs(mean - target) / deviation,
        has_low_peak=mean_peak(runs) < threshold,
    )


def best_fit(fits: list[Fit], name: str) -> str:
    """Return the candidate that the rule chooses; empty if none has all of its runs."""
    own = [fit for fit in fits if fit.optimizer == name and fit.complete]
    return min(own, key=lambda fit: fit.rank).candidate if own else ""


def table(setting: Setting, fits: list[Fit], chosen: dict[str, str]) -> Table:
    """Lay out every candidate, below the paper's figures."""
    rows = []
    for name in sweeps.candidates(setting):
        if setting.on_paper_data:
            theirs = (paper.TABLE_1[row][name] for row in ROWS)
            cells = (f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in theirs)
            peak = "substantially lower" if name in LOWER_PEAK else ""
            rows.append((name, "the paper", "", *cells, "", peak, ""))
        rows += [fit_cells(setting, fit, chosen) for fit in fits if fit.optimizer == name]

    header = ("", "setting", "rates", *ROWS, "distance", "peak ECE", "chosen")
    note = (
        "r with sharpness, mean ± standard deviation over learning rates. Distance: of r of test "
        "ECE from the paper's, in its standard deviations. The rule, written before the runs: the "
        "least distance; for Muon a peak below 0.8 of the lower of GD's and SGD's comes first. "
        f"{agreement_text(setting, chosen)}"
    )
    return Table("Settings that the paper does not give", header, tuple(rows), note)


def fit_cells(setting: Setting, fit: Fit, chosen: dict[str, str]) -> tuple[str, ...]:
    """Return the cells of one candidate."""
    column = sweeps.candidates(setting)[fit.optimizer][fit.candidate]
    return (
        fit.optimizer,
        f"{fit.candidate}, {column.steps:,} steps" + ("" if fit.complete else " (runs missing)"),
        ", ".join(column.rates),
        *(mean_std_text(fit.correlations[row]) for row in ROWS),
        f"{fit.distance:.1f}" if setting.on_paper_data else "",
        mean_std_text(fit.peaks, ".3f"),
        "by the rule" if chosen[fit.optimizer] == fit.candidate else "",
    )


def agreement_text(setting: Setting, chosen: dict[str, str]) -> str:
    """Return what Table 1 uses, and whether the rule chooses the same."""
    if not setting.on_paper_data:
        return "Runs on other data choose nothing."
    parts = []
    for name, used in sweeps.CHOSEN.items():
        agrees = not chosen[name] or chosen[name] == used
        parts.append(f"{name} {used}" + ("" if agrees else f" (the rule chooses {chosen[name]})"))
    return f"Table 1 uses: {'; '.join(parts)}."
