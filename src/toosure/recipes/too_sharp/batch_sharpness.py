"""Batch sharpness beside Gauss-Newton sharpness for SGD, and how ECE correlates with both."""

import numpy as np

from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
    missing_runs,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import finite_rows, mean_and_std, mean_std_text, pearson, spearman
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.rise_and_fall import smoothed_peak_step
from toosure.runs import Run

ECE, KCE, BATCH, GN = (
    f"train/{name}" for name in ("ece", "mmce", "batch_sharpness", "gn_sharpness")
)
PAIRS = {
    "ECE, batch sharpness": (ECE, BATCH),
    "ECE, GN sharpness": (ECE, GN),
    "KCE, batch sharpness": (KCE, BATCH),
    "batch, GN sharpness": (BATCH, GN),
}
STRONG = 0.7  # the paper says "strong" and has no figure for batch sharpness
SHOWN_ROWS = 11
CORRELATES = "Section 3.1: training ECE correlates strongly with batch sharpness, SGD"


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the correlations of ECE with both sharpnesses along each run, and some rows."""
    runs = store.runs(sweeps.batch_sharpness(setting))
    tables = [correlation_table(runs), row_table(setting, runs)]
    values = {name: [correlation(run, *keys) for run in runs] for name, keys in PAIRS.items()}
    return Findings([claim(setting, runs)], tables, values)


def correlation(run: Run, a: str, b: str) -> float:
    """Return Pearson's r over the rows of a run that have both numbers."""
    return pearson(*finite_rows(run.columns[a], run.columns[b]))


def rank_correlation(run: Run) -> float:
    """Return Spearman's rho of ECE and batch sharpness over the rows that have both."""
    return spearman(*finite_rows(run.columns[ECE], run.columns[BATCH]))


def claim(setting: Setting, runs: list[Run]) -> Claim:
    """Judge whether the mean r over learning rates is strong."""
    if not runs:
        return claim_without_runs(CORRELATES)

    correlations = [correlation(run, ECE, BATCH) for run in runs]
    return judge(
        CORRELATES,
        found=f"{mean_std_text(correlations)} (n = {len(runs)} rates)",
        paper="strong",
        holds=mean_and_std(correlations)[0] >= STRONG,
        rule=f"ours: mean r over learning rates of at least {STRONG}",
        reasons=[
            setting.why_not_judged,
            missing_runs(len(runs), len(sweeps.batch_sharpness(setting))),
        ],
    )


def edge(run: Run) -> float:
    """Return 2 / lr, the edge of stability."""
    return 2 / float(run.rows[-1]["lr"])


def correlation_table(runs: list[Run]) -> Table:
    """Lay out r of each pair, one row per run, and the mean over runs below."""
    rows = []
    for run in runs:
        cells = (f"{correlation(run, *keys):.2f}" for keys in PAIRS.values())
        ranks = rank_correlation(run)
        peaks = (f"{smoothed_peak_step(run, key):,.0f}" for key in (ECE, GN, BATCH))
        rows.append((f"{edge(run):.0f}", str(len(run.rows)), *cells, f"{ranks:.2f}", *peaks))
    if len(runs) > 1:
        means = [
            mean_std_text([correlation(run, *keys) for run in runs]) for keys in PAIRS.values()
        ]
        rank_mean = mean_std_text([rank_correlation(run) for run in runs])
        rows.append(("mean", "", *means, rank_mean, "", "", ""))

    correlations = (*(f"r: {name}" for name in PAIRS), "Spearman: ECE, batch")
    peaks_of = ("peak of ECE, step", "of GN sharpness", "of batch sharpness")
    header = ("2 / lr", "rows", *correlations, *peaks_of)
    note = (
        "Pearson's r over all rows of a run, training split; KCE is MMCE (bandwidth 0.4). Peaks "
        "are those of the series smoothed over 5 % of the run."
    )
    return Table("Calibration error and batch sharpness", header, tuple(rows), note)


def caption(runs: list[Run]) -> str:
    """Return the caption: in how many runs batch sharpness peaks last."""
    last = sum(
        smoothed_peak_step(run, BATCH)
        > max(smoothed_peak_step(run, ECE), smoothed_peak_step(run, GN))
        for run in runs
    )
    return (
        f"One colour per learning rate. Smoothed, batch sharpness peaks last in {last} of "
        f"{len(runs)} runs."
    )


def row_table(setting: Setting, runs: list[Run]) -> Table:
    """Lay out a few rows of every run; early rows are close together."""
    rows = []
    for run in runs:
        for row in chosen_rows(run):
            sharpness = row["train/batch_sharpness"]
            error = row["train/batch_sharpness_error"] * abs(sharpness)  # stored relative
            rows.append(
                (
                    f"{edge(run):.0f}",
                    f"{row['step']:,}",
                    f"{row['train/gn_sharpness']:.1f}",
                    f"{sharpness:.1f} ± {error:.1f}",
                    f"{row['train/ece']:.3f}",
                )
            )

    header = ("2 / lr", "step", "GN sharpness", "batch sharpness", "train ECE")
    config = sweeps.batch_sharpness(setting)[0]
    note = (
        f"SGD, batch {config.batch}; some of the rows, which are {config.every} steps apart. Batch "
        "sharpness is the mean over batches of g'Hg / g'g (Andreyev and Beneventano, 2024), "
        "sampled; ± is the standard error of that mean."
    )
    return Table("Batch sharpness", header, tuple(rows), note)


def chosen_rows(run: Run) -> list[dict[str, float]]:
    """Return the first and last row and some between, at geometric distances."""
    count = len(run.rows)
    places = np.unique(np.geomspace(1, count, min(count, SHOWN_ROWS)).round().astype(int) - 1)
    return [run.rows[place] for place in places]
