"""The settling experiment: which change keeps gamma, and with it ECE, from differing by seed.

The rules below were written before the runs, of H only that on its spread: what else is asked of it
was asked of G, the default of then. Spread is the largest minus the smallest of five.
"""

import numpy as np

from toosure.recipes.benchmark.score_files import Record
from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.comparison import score_cells, why_not_judged
from toosure.recipes.gamma_net.rows import ERRORS, Row, Rows, along_training, scored_rows, unrounded
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
from toosure.recipes.series import spread_text

ARM_H = "gamma-net (H)"
ARM_G = "G: one rate"
FIRST = "A: as first built"
STEADY = (
    "D: accuracy detached, virtual rate .1",
    "E: D, meta batch 512",
    ARM_G,
    ARM_H,
)
SPREAD = 1.0  # points of ECE
OVERCONFIDENT = 2.0  # points of confidence above accuracy from which CE must be beaten
FIRST_CUT = 0.5  # share of the steps after which the rate is cut
FROZEN = 0.1  # of gamma
NOTE = (
    "Test split at the end of training, 15 bins, errors in points, mean ± standard deviation over "
    "seeds; smallest to largest ECE beside it. Over-confidence is confidence minus accuracy on the "
    "validation split. Gamma is the mean of the last batch before the first cut of the rate and at "
    "the end; signal / noise is that of a meta-step, the median over rows."
)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the arms with their spread over seeds, and whether the experiment settles it."""
    wanted = set(sweeps.arms(setting))
    configs = {
        name: [each for each in sweeps.arm_configs(setting, name) if each in wanted]
        for name in sweeps.ARMS
    }
    rows = scored_rows(setting, store, configs)

    header = (
        *("arm", "seeds", "accuracy %", *ERRORS, "ECE from to", "over-confidence"),
        *("gamma at the first cut", "gamma at the end", "signal / noise"),
    )
    cells = tuple(arm_cells(row) for row in rows.values() if row.records)
    table = Table("Arms of the settling experiment", header, cells, NOTE)
    return Findings(claims(setting, rows), [table], unrounded(rows))


# -- claims ---------------------------------------------------------------------------------


def claims(setting: Setting, rows: Rows) -> list[Claim]:
    """Judge: steady over seeds, the first build not, better than CE where that is too sure."""
    steady = [spread_claim(setting, rows[name]) for name in STEADY]
    return [
        *steady,
        unsteady_claim(setting, rows[FIRST]),
        frozen_claim(setting, rows[FIRST]),
        *(better_claim(setting, rows, name) for name in (ARM_G, ARM_H)),
        *(accuracy_claim(setting, rows, name) for name in (ARM_G, ARM_H)),
    ]


def spread(row: Row) -> float:
    """Return the largest minus the smallest ECE over seeds, in points."""
    errors = row.points("ece")
    return max(errors) - min(errors)


def reasons(setting: Setting, *rows: Row) -> list[str]:
    """Say why nothing is judged: small runs, other data, or runs that are missing."""
    expected = len(sweeps.ARM_SEEDS)
    missing = [missing_runs(len(row.records), expected) for row in rows]
    return [why_not_judged(setting), *missing]


def spread_text_of(row: Row) -> str:
    errors = ", ".join(f"{error:.2f}" for error in row.points("ece"))
    return f"spread {spread(row):.2f} points ({errors}; n = {len(row.records)})"


def spread_claim(setting: Setting, row: Row) -> Claim:
    """Judge: final ECE differs by less than a point over five seeds."""
    says = f"{row.name}: ECE differs by less than a point over five seeds"
    if not row.records:
        return claims_without_runs(says)[0]
    return judge(
        says,
        found=spread_text_of(row),
        paper="not reported",
        holds=spread(row) < SPREAD,
        rule="ours: largest minus smallest",
        unless=reasons(setting, row),
    )


def unsteady_claim(setting: Setting, first: Row) -> Claim:
    """Judge the prediction that the first build is not steady, else nothing was explained."""
    says = "predicted: the first build (A) differs by a point or more"
    if not first.records:
        return claims_without_runs(says)[0]
    return judge(
        says,
        found=spread_text_of(first),
        paper="not reported",
        holds=spread(first) >= SPREAD,
        rule="ours: largest minus smallest",
        unless=reasons(setting, first),
    )


def frozen_claim(setting: Setting, first: Row) -> Claim:
    """Judge the prediction that the first build's gamma stays where the first cut finds it."""
    says = "predicted: after the first cut of the rate, gamma of A stays within .1"
    if not first.records:
        return claims_without_runs(says)[0]
    moves = [abs(last_gamma(record) - gamma_at_first_cut(record)) for record in first.records]
    return judge(
        says,
        found=", ".join(f"{move:.2f}" for move in moves) + f" (n = {len(moves)})",
        paper="not reported",
        holds=max(moves) < FROZEN,
        rule="ours: every seed",
        unless=reasons(setting, first),
    )


def better_claim(setting: Setting, rows: Rows, name: str) -> Claim:
    """Judge: less ECE than cross-entropy, wherever that is over-confident by 2 points or more."""
    says = f"{name} has less ECE than cross-entropy where that is over-confident"
    ours, ce = rows[name], rows["CE"]
    if not ours.records or not ce.records:
        return claims_without_runs(says)[0]

    excess = float(np.mean([validation_overconfidence(record) for record in ce.records]))
    too_sure = "" if excess > OVERCONFIDENT else f"CE is over-confident by {excess:.1f} points only"
    errors = f"{spread_text(ours.points('ece'))} : {spread_text(ce.points('ece'))}"
    return judge(
        says,
        found=f"{errors} (n = {len(ours.records)} : {len(ce.records)})",
        paper="lower",
        holds=ours.mean("ece") < ce.mean("ece"),
        rule="ours: judged where CE is over-confident by more than 2 points",
        unless=[*reasons(setting, ours, ce), too_sure],
    )


def accuracy_claim(setting: Setting, rows: Rows, name: str) -> Claim:
    """Judge: at most a point less accurate than cross-entropy."""
    says = f"{name}: ... at an accuracy within one point of cross-entropy's"
    ours, ce = rows[name], rows["CE"]
    if not ours.records or not ce.records:
        return claims_without_runs(says)[0]
    own, other = 100 * ours.mean("accuracy"), 100 * ce.mean("accuracy")
    return judge(
        says,
        found=f"{own:.2f} % : {other:.2f} % (n = {len(ours.records)} : {len(ce.records)})",
        paper="competitive",
        holds=own > other - 1,
        rule="ours: within a point",
        unless=reasons(setting, ours, ce),
    )


# -- table ----------------------------------------------------------------------------------


def arm_cells(row: Row) -> tuple[str, ...]:
    """Print one arm."""
    errors = row.points("ece")
    cells = (
        row.name,
        str(len(row.records)),
        *score_cells(row),
        f"{min(errors):.2f} to {max(errors):.2f}",
        spread_text([validation_overconfidence(record) for record in row.records]),
    )
    if row.name == "CE":
        return (*cells, "–", "–", "–")

    return (
        *cells,
        spread_text([gamma_at_first_cut(record) for record in row.records]),
        spread_text([last_gamma(record) for record in row.records]),
        spread_text([signal_to_noise(record) for record in row.records]),
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
