"""What the paper reads from Table 1, and the rules that judge it here.

The rules were written when the single runs were scored and known, so claims on single runs alone
are reported, not judged. At that time no ensemble existed, and no run of the table was judged on
shifts.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, why_not_judged
from toosure.recipes.benchmark.shift_scores import auroc_against, fewest_images
from toosure.recipes.csam.claims import (
    LOWER_RULE,
    error_texts,
    paper_number,
    paper_pair,
    seed_text,
)
from toosure.recipes.csam.ensemble_rows import KINDS
from toosure.recipes.csam.unknown_data import SETS
from toosure.recipes.recipe import (
    Claim,
    Setting,
    claim_without_runs,
    judge,
)

OPTIMIZERS = ("SGD", "SAM", "CSAM")
MIN_RATIO = 1.5  # of SGD's ECE to SAM's, where the paper says about two
PAPER_SETS = {name: column for name, column in SETS.items() if column is not None}
RULE_AFTER_RUNS = "the rule was written when these runs were known"
NOT_JUDGED = "no runs of these rows were judged on it: `--shift all`, `--ood svhn=FILE.npz`"
NOT_IN_QUICK = "quick runs are of digits, which have no such set"


def ood_claims(setting: Setting, rows: Rows, scores: PairedScores) -> list[Claim]:
    """Judge all claims of the paper on Table 1: errors, then unknown data."""
    return [
        *ensemble_claims(setting, rows, scores),
        *(ratio_claim(setting, rows, kind) for kind in KINDS),
        *(csam_claim(setting, rows, scores, kind) for kind in KINDS),
        *(ensemble_auroc_claim(setting, rows, name) for name in PAPER_SETS),
        *(dropout_auroc_claim(setting, rows, optimizer) for optimizer in OPTIMIZERS),
        dropout_order_claim(setting, rows),
    ]


# -- ECE of the test images -----------------------------------------------------------------------


def ensemble_claims(setting: Setting, rows: Rows, scores: PairedScores) -> list[Claim]:
    """Judge whether an ensemble and MC-Dropout lower the ECE of each optimizer."""
    claims = []
    for optimizer in OPTIMIZERS:
        vanilla = rows[f"{optimizer}/Vanilla"]
        for variant in ("MC-Dropout", "Ensemble"):
            statement = f"{variant} lowers the ECE of {optimizer}"
            other = rows[f"{optimizer}/{variant}"]
            claims.append(lower_claim(setting, statement, vanilla, other, scores))
    return claims


def csam_claim(setting: Setting, rows: Rows, scores: PairedScores, kind: str) -> Claim:
    """Judge whether CSAM's ECE is below SAM's."""
    statement = f"{kind}: CSAM's ECE is below SAM's"
    sam = rows[f"SAM/{kind}"]
    csam = rows[f"CSAM/{kind}"]
    return lower_claim(setting, statement, sam, csam, scores, reason=written_after_runs(kind))


def written_after_runs(kind: str) -> str:
    """Return the reason not to judge single runs: the rule is younger. Empty for others."""
    return RULE_AFTER_RUNS if kind == "Vanilla" else ""


def lower_claim(
    setting: Setting,
    statement: str,
    reference: ScoredRow,
    better: ScoredRow,
    scores: PairedScores,
    reason: str = "",
) -> Claim:
    """Judge whether one row has a lower ECE than another, by pairs of runs and images."""
    result = scores.differences(reference.records, better.records)
    if result is None:
        return claim_without_runs(statement)
    seeds = len(result.ece.by_seed)
    alike = at_seeds_of(reference, better)
    return judge(
        statement,
        found=f"{error_texts(alike, better)}; paired {seed_text(result.ece)}",
        paper=paper_pair(reference, better),
        holds=result.ece.below_zero,
        rule=LOWER_RULE if seeds > 1 else f"{LOWER_RULE}; n = 1",
        reasons=[*why_not_judged(setting, [reference, better]), reason],
    )


def ratio_claim(setting: Setting, rows: Rows, kind: str) -> Claim:
    """Judge whether SGD's ECE remains about twice SAM's."""
    statement = f"{kind}: SGD's ECE is about twice SAM's"
    both = [rows[f"{optimizer}/{kind}"] for optimizer in ("SGD", "SAM")]
    sgd, sam = both
    if not sgd.records or not sam.records:
        return claim_without_runs(statement)

    ratio = sgd.mean("ece") / sam.mean("ece")
    printed = paper_number(sgd, "ECE") / paper_number(sam, "ECE")
    return judge(
        statement,
        found=f"{100 * sgd.mean('ece'):.2f} : {100 * sam.mean('ece'):.2f}, {ratio:.1f} times",
        paper=f"{printed:.1f} times",
        holds=ratio >= MIN_RATIO,
        rule=f"ours: at least {MIN_RATIO:g} times, by the mean over seeds",
        reasons=[*why_not_judged(setting, both, several=both), written_after_runs(kind)],
    )


# -- unknown data ---------------------------------------------------------------------------------


def ensemble_auroc_claim(setting: Setting, rows: Rows, name: str) -> Claim:
    """Judge whether ensembles of SAM and CSAM detect unknown images better than SGD's."""
    statement = f"Ensemble: SAM and CSAM have a higher AUROC than SGD against {name}"
    ensembles = [rows[f"{optimizer}/Ensemble"] for optimizer in OPTIMIZERS]
    if not all(each.records for each in ensembles):
        return claim_without_runs(statement)

    values = [100 * mean_auroc(each.records, name) for each in ensembles]
    if any(math.isnan(value) for value in values):
        return Claim(statement, "–", note=why_unknown(setting))
    sgd, sam, csam = values
    return judge(
        statement,
        found=f"SGD {sgd:.2f}, SAM {sam:.2f}, CSAM {csam:.2f}",
        paper=", ".join(each.row.figures[PAPER_SETS[name]] for each in ensembles),
        holds=min(sam, csam) > sgd,
        rule="ours: both, by the mean over ensembles",
        reasons=[*why_not_judged(setting, ensembles, several=ensembles), some_images(ensembles)],
    )


def dropout_auroc_claim(setting: Setting, rows: Rows, optimizer: str) -> Claim:
    """Judge whether MC-Dropout detects unknown images less well than the network alone."""
    statement = f"MC-Dropout lowers the AUROC of {optimizer} against unknown data"
    both = dropout_pair(rows, optimizer)
    vanilla, dropout = both
    if not vanilla.records or not dropout.records:
        return claim_without_runs(statement)

    changes = auroc_changes(vanilla, dropout)
    if any(math.isnan(change) for change in changes.values()):
        return Claim(statement, "–", note=why_unknown(setting))
    printed = (
        f"{column} {paper_number(dropout, column) - paper_number(vanilla, column):+.2f}"
        for column in PAPER_SETS.values()
    )
    return judge(
        statement,
        found=", ".join(f"{name} {change:+.2f}" for name, change in changes.items()),
        paper=", ".join(printed),
        holds=max(changes.values()) < 0,
        rule="ours: against each set, by the mean over the seeds of both",
        reasons=[*why_not_judged(setting, both, several=both), some_images(both)],
    )


def dropout_order_claim(setting: Setting, rows: Rows) -> Claim:
    """Judge whether MC-Dropout costs SAM more AUROC than SGD."""
    statement = "MC-Dropout lowers the AUROC of SAM more than that of SGD"
    sgd = dropout_pair(rows, "SGD")
    sam = dropout_pair(rows, "SAM")
    compared = [*sgd, *sam]
    if not all(each.records for each in compared):
        return claim_without_runs(statement)

    for_sgd = auroc_changes(*sgd)
    for_sam = auroc_changes(*sam)
    changes = (*for_sgd.values(), *for_sam.values())
    if any(math.isnan(change) for change in changes):
        return Claim(statement, "–", note=why_unknown(setting))
    return judge(
        statement,
        found=", ".join(f"{k} {for_sam[k]:+.2f} : {for_sgd[k]:+.2f}" for k in for_sam),
        paper="yes, against each",
        holds=all(for_sam[name] < for_sgd[name] for name in for_sam),
        rule="ours: against each set, by the mean over the seeds of both",
        reasons=[*why_not_judged(setting, compared, several=compared), some_images(compared)],
    )


def why_unknown(setting: Setting) -> str:
    """Return why rows were not judged on the paper's sets."""
    return NOT_IN_QUICK if setting.quick else NOT_JUDGED


def some_images(rows: Sequence[ScoredRow]) -> str:
    """Return the reason not to judge rows that saw only some test images; empty if all did."""
    some = fewest_images([record for each in rows for record in each.records])
    return f"only {some:,} of the test images were judged" if some else ""


def dropout_pair(rows: Rows, optimizer: str) -> tuple[ScoredRow, ScoredRow]:
    """Return the rows of an optimizer without and with MC-Dropout."""
    return rows[f"{optimizer}/Vanilla"], rows[f"{optimizer}/MC-Dropout"]


def auroc_changes(vanilla: ScoredRow, dropout: ScoredRow) -> dict[str, float]:
    """Return how MC-Dropout changes the AUROC against each set, in points, at the same seeds."""
    alike = at_seeds_of(vanilla, dropout).records
    return {
        name: 100 * (mean_auroc(dropout.records, name) - mean_auroc(alike, name))
        for name in PAPER_SETS
    }


def at_seeds_of(reference: ScoredRow, other: ScoredRow) -> ScoredRow:
    """Return a row with its records at the seeds of another alone."""
    seeds = {record.config.seed for record in other.records}
    return replace(
        reference, records=[each for each in reference.records if each.config.seed in seeds]
    )


def mean_auroc(records: Sequence[Record], name: str) -> float:
    """Return the mean AUROC against a set; NaN if a run was not judged on it."""
    values = [auroc_against(record, name) for record in records]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else math.nan
