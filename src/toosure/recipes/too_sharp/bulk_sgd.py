"""BulkSGD: oscillations, and a sharpness of thousands while the loss still falls (Figure 2)."""

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claims_without_runs,
    judge,
    missing_runs,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.summaries import last_finite, peak_ece, share_of_increases
from toosure.runs import Run


def long_run_findings(setting: Setting, store: RunStore) -> Findings:
    """Return claims and table of longer runs, to see whether length was missing."""
    configs = sweeps.long_bulk_sgd(setting)
    return Findings(claims(setting, store, configs), [table(setting, store, configs)])


def claims(setting: Setting, store: RunStore, configs: sweeps.BulkRuns) -> list[Claim]:
    """Judge whether sharpness reaches thousands while the loss still falls.

    The paper renews directions at every step, for 100,000 steps. Our claims name our length and
    renewal.
    """
    config = next(iter(configs.values()))
    how = f"over {config.steps:,} steps{renewal_text(config)}"
    sharp = f"BulkSGD's sharpness reaches thousands, {how}"
    falling = f"... while the training loss still falls, {how}"

    runs = store.runs(configs.values(), diverged=True)
    if not runs:
        return claims_without_runs(sharp, falling)

    highest = max(float(np.nanmax(run.columns["train/gn_sharpness"])) for run in runs)
    falls = [still_falls(run) for run in runs]
    reasons = [setting.why_not_judged, missing_runs(len(runs), len(configs))]
    return [
        judge(
            sharp,
            found=f"largest {highest:,.0f}",
            paper="thousands, over 100,000 steps, directions renewed at every step",
            holds=highest >= 1000,
            rule="ours: one of the runs above 1,000",
            reasons=reasons,
        ),
        judge(
            falling,
            found=f"{sum(falls)} of {len(falls)} runs",
            paper="minimised over 100,000 steps, directions renewed at every step",
            holds=all(falls),
            rule="ours: complete, the least loss in the last quarter, the last below the first, "
            "in every run",
            reasons=reasons,
        ),
    ]


def renewal_text(config: RunConfig) -> str:
    """Return how a BulkSGD run renews its directions; empty if it solves for them at every step."""
    settings = config.word("optimizer").settings
    refresh = int(settings.get("refresh", 1))
    if refresh > 1:
        return f", directions renewed every {refresh} steps"
    rounds = settings.get("rounds")
    return f", directions renewed at every step by {rounds} block iterations" if rounds else ""


def still_falls(run: Run) -> bool:
    """Whether a run is complete and its loss is least at a late row and ends below its start."""
    loss = run.columns["train/loss"]
    late = np.nanargmin(loss) >= 0.75 * (len(loss) - 1)
    return bool(run.status == "complete" and late and loss[-1] < loss[0])


def oscillation_claims(setting: Setting, store: RunStore) -> list[Claim]:
    """Judge whether the loss rises more often than SGD's over the same steps."""
    bulk_configs = sweeps.bulk_sgd(setting)
    sgd_configs = sweeps.rate_configs(setting, "SGD", setting.first_seed)
    bulk_runs = store.runs(bulk_configs.values(), diverged=True)
    sgd_runs = store.runs(sgd_configs)
    if not bulk_runs or not sgd_runs:
        return claims_without_runs("BulkSGD oscillates")

    until = min(run.config["steps"] for run in bulk_runs)
    bulk_share = float(np.mean([share_of_increases(run, until) for run in bulk_runs]))
    sgd_share = float(np.mean([share_of_increases(run, until) for run in sgd_runs]))

    present = len(bulk_runs) + len(sgd_runs)
    expected = len(bulk_configs) + len(sgd_configs)
    claim = judge(
        "BulkSGD oscillates",
        found=f"loss rose in {bulk_share:.0%} of the intervals, SGD {sgd_share:.0%}, "
        f"up to step {until:,}",
        paper="steep oscillations",
        holds=bulk_share > sgd_share,
        rule="ours: more often than SGD",
        reasons=[setting.why_not_judged, missing_runs(present, expected)],
    )
    return [claim]


def table(setting: Setting, store: RunStore, configs: sweeps.BulkRuns) -> Table:
    """Lay out BulkSGD, one row per run, with the SGD runs of Table 1 below."""
    rows = []
    for (rate, k), config in configs.items():
        run = store.run(config, diverged=True)
        if run is not None:
            rows.append((f"BulkSGD {rate}", str(k), *run_cells(run)))

    sgd_rates = sweeps.optimizers(setting)["SGD"].rates
    sgd_configs = sweeps.rate_configs(setting, "SGD", setting.first_seed)
    for rate, config in zip(sgd_rates, sgd_configs, strict=True):
        run = store.run(config)
        if run is not None:
            rows.append((f"SGD {rate}", "0", *run_cells(run)))

    header = (
        "rate",
        "k",
        "largest sharpness",
        "first loss",
        "least loss",
        "last loss",
        "intervals where it rose",
        "peak ECE",
        "steps",
    )
    config = next(iter(configs.values()))
    note = (
        "k is how many top eigenvectors of the Hessian are projected out of each step"
        f"{renewal_text(config) or ', found anew at every step'}."
    )
    return Table("BulkSGD", header, tuple(rows), note)


def run_cells(run: Run) -> tuple[str, ...]:
    """Return the cells of one run, without its rate and k."""
    loss = run.columns["train/loss"]
    sharpness = run.columns["train/gn_sharpness"]
    return (
        f"{float(np.nanmax(sharpness)):.3g}",
        f"{float(loss[0]):.3g}",
        f"{float(np.nanmin(loss)):.3g}",
        f"{last_finite(run, 'train/loss'):.3g}",
        f"{share_of_increases(run):.0%}",
        f"{peak_ece(run):.3f}",
        f"{run.last['step']:,}",
    )
