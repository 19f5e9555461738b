"""Ablations of gamma-net: the bandwidth of SECE, and its features."""

from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, why_not_judged
from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.claims import count_text, lower_ece_claim
from toosure.recipes.gamma_net.comparison import NOTE, score_cells
from toosure.recipes.gamma_net.rows import ERRORS, along_training, score_configs, unrounded
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text

NEAR = 0.01  # of ECE: how far above the best bandwidth the rule may lie
HEADER = ("seeds", "accuracy %", *ERRORS, "gamma at the end")


def bandwidth_findings(setting: Setting, store: RunStore) -> Findings:
    """Return how the width of the kernel changes calibration."""
    values = sweeps.bandwidth_values(setting)
    configs = {value: sweeps.bandwidth_configs(setting, value) for value in values}
    rows = score_configs(setting, store, configs)

    title = f"Bandwidth of SECE, {sweeps.single_data(setting, 'cifar100')}"
    table = Table(title, ("bandwidth", *HEADER), variant_cells(rows), NOTE)
    claims = [fixed_claim(rows), rule_claim(setting, rows)]
    return Findings(claims, [table], unrounded(rows))


def fixed_errors(rows: Rows) -> dict[str, float]:
    """Return the mean ECE at each fixed bandwidth that has runs."""
    return {name: row.mean("ece") for name, row in rows.items() if row.records and name != "auto"}


def fixed_claim(rows: Rows) -> Claim:
    """Report the range of ECE over the fixed bandwidths."""
    errors = fixed_errors(rows).values()
    text = "not run"
    if errors:
        text = f"ECE {100 * min(errors):.2f} to {100 * max(errors):.2f} points"
    return Claim(
        f"ECE over {len(errors)} bandwidths, .001 to 1",
        text,
        "not reported",
        None,
        "reported only: the paper uses .01 and asks the question",
    )


def rule_claim(setting: Setting, rows: Rows) -> Claim:
    """Judge the prediction that the bandwidth of the batch is near the best fixed one."""
    statement = (
        "predicted: the bandwidth of the batch (auto) is within a point of the best fixed one"
    )
    fixed = fixed_errors(rows)
    if not fixed or "auto" not in rows or not rows["auto"].records:
        return claim_without_runs(statement)

    own = rows["auto"].mean("ece")
    best = min(fixed, key=lambda name: fixed[name])
    present = [row for row in rows.values() if row.records]
    n = min(len(row.records) for row in present)
    return judge(
        statement,
        found=f"{100 * own:.2f} : {100 * fixed[best]:.2f} at {best} (n = {n})",
        paper="an open question",
        holds=own < fixed[best] + NEAR,
        rule="ours: mean ECE, at most a point above",
        reasons=why_not_judged(setting, rows.values(), several=present),
    )


def feature_findings(setting: Setting, store: RunStore) -> Findings:
    """Return the scores of gamma-net with other features."""
    configs = {kind: sweeps.feature_configs(setting, kind) for kind in sweeps.FEATURES}
    rows = score_configs(setting, store, configs)
    table = Table("What gamma-net reads", ("features", *HEADER), variant_cells(rows), NOTE)
    return Findings([feature_claim(setting, rows)], [table], unrounded(rows))


def feature_claim(setting: Setting, rows: Rows) -> Claim:
    """Judge whether the network's own features calibrate better than noise."""
    statement = "gamma-net needs its features: ECE lower than with noise in their place"
    own = rows["penultimate"]
    noise = rows["noise"]
    errors = (mean_std_text(row.points("ece")) for row in (own, noise))
    return lower_ece_claim(
        statement,
        own,
        noise,
        why_not_judged(setting, [own, noise]),
        found=f"{' : '.join(errors)} points {count_text(own, noise)}",
    )


def variant_cells(rows: Rows) -> tuple[tuple[str, ...], ...]:
    """Return the cells of each variant that has runs."""
    return tuple(
        (name, str(len(row.records)), *score_cells(row), gamma_text(row))
        for name, row in rows.items()
        if row.records
    )


def gamma_text(row: ScoredRow) -> str:
    """Return the mean gamma of the last batch, and how often it collapsed."""
    gammas = [along_training(record, "objective/gamma_mean")[-1] for record in row.records]
    ends = [along_training(record, "objective/gamma_collapsed")[-1] for record in row.records]
    collapsed = sum(bool(end) for end in ends)
    last = mean_std_text(gammas)
    return f"{last}, collapsed in {collapsed} of {len(row.records)}" if collapsed else last
