"""Table 1: correlation of calibration error and sharpness, and stricter measures."""

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
from toosure.recipes.series import finite_rows, mean_and_std, mean_std_text, pearson
from toosure.recipes.too_sharp import paper, sweeps
from toosure.recipes.too_sharp.correlations import (
    ROWS,
    Keys,
    RateCorrelations,
    TableCorrelations,
    of_first_seed,
    over_rates,
    read_correlations,
    unrounded,
)
from toosure.runs import Run

SHARES = (0.25, 0.5, 0.75, 1.0)  # of a run's length
ECE_ROWS = ("train ECE", "test ECE")


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return Table 1 as in the paper, over seeds, by stricter measures and by length."""
    correlations = read_correlations(setting, store)
    tables = [main_table(setting, correlations)]
    if len(setting.seeds_or(0)) > 1:
        tables.append(seed_table(correlations))
    tables += [
        strict_table(correlations),
        rate_table(setting, correlations),
        length_table(setting, store),
        settings_table(setting),
    ]
    return Findings(claims(setting, correlations), tables, {"couplings": unrounded(correlations)})


# -- claims ---------------------------------------------------------------------------------


def claims(setting: Setting, correlations: TableCorrelations) -> list[Claim]:
    """Judge every cell by the same rule, since the paper gives the settings of none."""
    return [
        compare_with_paper(setting, row, name, of_first_seed(by_seed))
        for row in ROWS
        for name, by_seed in correlations[row].items()
    ]


def compare_with_paper(setting: Setting, row: str, name: str, rates: RateCorrelations) -> Claim:
    """Judge whether our mean over learning rates is within two of the paper's deviations.

    The paper's table is for CIFAR-10. On other data there is nothing to compare with.
    """
    statement = f"Table 1: r of {row} and sharpness, {name}"
    ours = over_rates(rates)
    if not ours:
        return claim_without_runs(statement)

    found = f"{mean_std_text(ours)} (n = {len(ours)} rates)"
    if not setting.on_paper_data:
        return Claim(statement, found, note="the paper's Table 1 is of CIFAR-10")

    target, deviation = paper.TABLE_1[row][name]
    distance = abs(mean_and_std(ours)[0] - target) / deviation
    return judge(
        statement,
        found=found,
        paper=f"{target:.2f} ± {deviation:.2f}",
        holds=distance <= 2,
        rule=f"{distance:.1f} of the paper's standard deviations away{chosen_text(name)}",
        reasons=[missing_runs(len(ours), len(rates))],
    )


def chosen_text(name: str) -> str:
    """Return a remark if an optimizer's settings were chosen among several, else nothing."""
    tried = len(sweeps.CANDIDATES.get(name, {}))
    return f"; settings one of {tried} that were tried" if tried else ""


# -- tables ---------------------------------------------------------------------------------


def main_table(setting: Setting, correlations: TableCorrelations) -> Table:
    """Return mean ± standard deviation of r over the learning rates, ours above the paper's."""
    names = list(sweeps.optimizers(setting))
    rows = []
    for row, by_optimizer in correlations.items():
        ours = (mean_std_text(over_rates(of_first_seed(by_optimizer[name]))) for name in names)
        rows.append((row, *ours))
        if row in ROWS and setting.on_paper_data:
            theirs = (paper.TABLE_1[row][name] for name in names)
            rows.append(("  the paper", *(f"{mean:.2f} ± {sd:.2f}" for mean, sd in theirs)))

    note = (
        f"Pearson r with Gauss-Newton sharpness over all rows of a run, mean ± standard deviation "
        f"over learning rates, seed {setting.first_seed}. KCE is MMCE (bandwidth 0.4). Test rows "
        "pair the error of the held-out split with the sharpness of that split; the last row shows "
        "what comes of pairing it with the training sharpness."
    )
    return Table("Table 1", ("", *names), tuple(rows), note)


def seed_table(correlations: TableCorrelations) -> Table:
    """Return r averaged over rates, as mean ± standard deviation over seeds."""
    names = list(correlations["train ECE"])
    rows = []
    for row, by_optimizer in correlations.items():
        cells = []
        for name in names:
            by_seed = by_optimizer[name].values()
            means = [mean_and_std(over_rates(rates))[0] for rates in by_seed]
            cells.append(mean_std_text(means))
        rows.append((row, *cells))

    seeds = len(correlations["train ECE"][names[0]])
    note = (
        f"Mean over learning rates of each of {seeds} seeds (start and batches), then over those."
    )
    return Table("Table 1 over seeds", ("", *names), tuple(rows), note)


def strict_table(correlations: TableCorrelations) -> Table:
    """Return stricter correlations, which remove trends."""
    rows = []
    for row in ECE_ROWS:
        for name, by_seed in correlations[row].items():
            rates = of_first_seed(by_seed)
            if not over_rates(rates):
                continue
            fields = ("pearson", "spearman", "differences", "partial")
            cells = (mean_std_text(over_rates(rates, field)) for field in fields)
            low, high = (mean_and_std(over_rates(rates, end))[0] for end in ("low", "high"))
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


def rate_table(setting: Setting, correlations: TableCorrelations) -> Table:
    """Return r of every single run."""
    rows = []
    for name, column in sweeps.optimizers(setting).items():
        for i, rate in enumerate(column.rates):
            runs = (of_first_seed(correlations[row][name])[i] for row in ROWS)
            cells = ("–" if run is None else f"{run.pearson:.2f}" for run in runs)
            rows.append((name, rate, *cells))
    return Table("Table 1, run by run", ("", "learning rate", *ROWS), tuple(rows))


def length_table(setting: Setting, store: RunStore) -> Table:
    """Return r over the first part of the runs, to show how much the length matters."""
    rows = []
    for row in ECE_ROWS:
        for name in sweeps.optimizers(setting):
            runs = store.runs(sweeps.rate_configs(setting, name, setting.first_seed))
            cells = (
                mean_std_text([r_of_first_part(run, ROWS[row], share) for run in runs])
                for share in SHARES
            )
            rows.append((row, name, *cells))

    header = ("", "", *(f"first {share:.0%}" for share in SHARES))
    note = (
        "Pearson r over the first part of each run's steps, mean ± standard deviation over rates. "
        "The paper does not give its lengths; this is how much they matter."
    )
    return Table("r against the length of a run", header, tuple(rows), note)


def r_of_first_part(run: Run, keys: Keys, share: float) -> float:
    """Return Pearson's r over the first `share` of a run's steps."""
    step = run.columns["step"]
    first_part = step <= share * step[-1]
    error = run.columns[keys.error][first_part]
    sharpness = run.columns[keys.sharpness][first_part]
    return pearson(*finite_rows(error, sharpness))


def settings_table(setting: Setting) -> Table:
    """State optimizer, learning rates, length and batch of every column."""
    rows = tuple(
        (
            name,
            column.word.format("LR"),
            ", ".join(column.rates),
            f"{column.steps:,}",
            "full" if column.batch is None else str(column.batch),
        )
        for name, column in sweeps.optimizers(setting).items()
    )

    every = sweeps.table_1(setting)[0].every
    note = (
        f"Every run is stopped after its number of steps, whatever it has reached, and measured at "
        f"step 0 and every {every} steps. Data {sweeps.images(setting)} "
        f"({sweeps.image_source(setting)}), model {sweeps.network(setting)}, cross-entropy, "
        "constant rate, float32. The paper gives neither the rates of AdamW and Muon nor the "
        "batch, rho and lengths of any optimizer: these are ours, and every column is judged "
        "alike. Of AdamW and Muon several were tried (part `settings`, with the rule of choice)."
    )
    return Table("Settings of Table 1", ("", "word", "LR", "steps", "batch"), rows, note)
