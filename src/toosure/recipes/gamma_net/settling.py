"""The settling experiment: which change makes gamma, and with it ECE, differ less between seeds.

The rules were written before the runs. For H only the rule on its spread was; the others were
written for G, the default at that time. Spread is the largest minus the smallest of five.
"""

import numpy as np

from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, why_not_judged
from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.claims import (
    accurate_as_ce,
    count_text,
    lower_than_ce,
    spread_claim,
)
from toosure.recipes.gamma_net.comparison import score_cells
from toosure.recipes.gamma_net.rows import ERRORS, along_training, score_configs, unrounded
from toosure.recipes.gamma_net.sweeps import ARM_A, ARM_D, ARM_E, ARM_G, ARM_H
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_std, mean_std_text

STEADY = (ARM_D, ARM_E, ARM_G, ARM_H)
FIRST_CUT = 0.5  # share of the steps after which the rate is cut
FROZEN = 0.1  # of gamma
NOTE = (
    "Test split at the end of training, 15 bins, errors in points, mean ± standard deviation over "
    "seeds; smallest to largest ECE beside it. Over-confidence is confidence minus accuracy on the "
    "validation split. Gamma is the mean of the last batch before the first cut of the rate and at "
    "the end; signal / noise is that of a meta-step, the median over rows."
)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the arms with their spread over seeds, and the claims on them."""
    wanted = set(sweeps.arms(setting))
    configs = {
        name: [each for each in sweeps.arm_configs(setting, name) if each in wanted]
        for name in sweeps.ARMS
    }
    rows = score_configs(setting, store, configs, expected=len(sweeps.ARM_SEEDS))

    header = (
        "arm",
        "seeds",
        "accuracy %",
        *ERRORS,
        "ECE from to",
        "over-confidence",
        "gamma at the first cut",
        "gamma at the end",
        "signal / noise",
    )
    cells = tuple(arm_cells(row) for row in rows.values() if row.records)
    table = Table("Arms of the settling experiment", header, cells, NOTE)
    return Findings(claims(setting, rows), [table], unrounded(rows))


# -- claims ---------------------------------------------------------------------------------


def claims(setting: Setting, rows: Rows) -> list[Claim]:
    """Judge which arms are steady over seeds, and better than an over-confident CE."""
    first = rows[ARM_A]
    steady = "{}: ECE differs by less than a point over five seeds"
    unsteady = "predicted: the first build (A) differs by a point or more"
    lower_g, accurate_g = ce_claims(setting, rows, ARM_G)
    lower_h, accurate_h = ce_claims(setting, rows, ARM_H)
    return [
        *(
            spread_claim(steady.format(name), rows[name], why_not_judged(setting, [rows[name]]))
            for name in STEADY
        ),
        # If the first build were steady, there would be nothing to explain.
        spread_claim(unsteady, first, why_not_judged(setting, [first]), steady=False),
        frozen_claim(setting, first),
        *(lower_g, lower_h, accurate_g, accurate_h),
    ]


def frozen_claim(setting: Setting, first: ScoredRow) -> Claim:
    """Judge the prediction that the first build's gamma stays near its value at the first cut."""
    statement = "predicted: after the first cut of the rate, gamma of A stays within .1"
    if not first.records:
        return claim_without_runs(statement)
    moves = [abs(last_gamma(record) - gamma_at_first_cut(record)) for record in first.records]
    return judge(
        statement,
        found=", ".join(f"{move:.2f}" for move in moves) + f" (n = {len(moves)})",
        paper="not reported",
        holds=max(moves) < FROZEN,
        rule="ours: every seed",
        reasons=why_not_judged(setting, [first]),
    )


def ce_claims(setting: Setting, rows: Rows, name: str) -> list[Claim]:
    """Judge whether an arm has less ECE than an over-confident CE, at its accuracy."""
    ours = rows[name]
    ce = rows["CE"]
    reasons = why_not_judged(setting, [ours, ce])
    excess = mean_and_std([validation_overconfidence(record) for record in ce.records])[0]
    rule = "ours: judged where CE is over-confident by more than 2 points"

    own = ours.mean("accuracy")
    other = ce.mean("accuracy")
    accuracies = f"{100 * own:.2f} % : {100 * other:.2f} % {count_text(ours, ce)}"
    return [
        lower_than_ce(ours, ce, excess, reasons, rule=rule),
        accurate_as_ce(ours, ce, accuracies, reasons),
    ]


# -- table ----------------------------------------------------------------------------------


def arm_cells(row: ScoredRow) -> tuple[str, ...]:
    """Return the cells of one arm of the experiment."""
    errors = row.points("ece")
    cells = (
        row.name,
        str(len(row.records)),
        *score_cells(row),
        f"{min(errors):.2f} to {max(errors):.2f}",
        mean_std_text([validation_overconfidence(record) for record in row.records]),
    )
    if row.name == "CE":
        return (*cells, "–", "–", "–")

    return (
        *cells,
        mean_std_text([gamma_at_first_cut(record) for record in row.records]),
        mean_std_text([last_gamma(record) for record in row.records]),
        mean_std_text([signal_to_noise(record) for record in row.records]),
    )


def validation_overconfidence(record: Record) -> float:
    """Return confidence minus accuracy on the validation split at the end, in points."""
    confidence = along_training(record, "val/confidence")[-1]
    return 100 * (confidence - along_training(record, "val/accuracy")[-1])


def last_gamma(record: Record) -> float:
    return along_training(record, "objective/gamma_mean")[-1]


def gamma_at_first_cut(record: Record) -> float:
    """Return the mean gamma of the last row before the rate is first cut."""
    cut = FIRST_CUT * record.config.steps
    steps = along_training(record, "step")
    gammas = along_training(record, "objective/gamma_mean")
    before = [gamma for step, gamma in zip(steps, gammas, strict=True) if step <= cut]
    return before[-1]


def signal_to_noise(record: Record) -> float:
    """Return the median over rows of the signal-to-noise ratio of a meta-step."""
    steps = along_training(record, "step")
    ratios = along_training(record, "objective/meta_signal_to_noise")
    return float(np.median([r for step, r in zip(steps, ratios, strict=True) if step > 0]))
