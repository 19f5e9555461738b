"""Compare the steered radius (no calibration) with all rivals.

Rivals are taken before and after temperature scaling.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.scored_rows import (
    ScoredRow,
    by_data,
    by_name,
    score_rows,
    why_not_judged,
)
from toosure.recipes.radius import rows
from toosure.recipes.radius.difference_bounds import BoundedDifference, BoundedScores
from toosure.recipes.radius.scores import tables, values_of
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    claims_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore

MARGIN = 0.3  # points
ERRORS = {"smece": "smECE", "debiased_ece": "debiased ECE"}
PAIRED_HEADER = ("ours - rival", "seeds", "accuracy, points", "NLL", "ECE, points")
PAIRED_NOTE = (
    "Means over the seeds that both have, neither after a temperature; 95 % intervals resample the "
    "test images (2,000 times)."
)
RULES = Table(
    "How the goal is judged",
    ("", "rule, written before the runs"),
    (
        (
            "the best of all",
            "the rival of least mean over its seeds, as it is or after temperature scaling. The "
            "cells of CSAM's grid only served to choose its setting by validation NLL. Being "
            "picked among many by its test score favours a rival, not us",
        ),
        (
            "smECE, debiased ECE",
            f"ours minus the best, paired by test image and seed: the one-sided 95 % bound over "
            f"test images (1,000 resamples, centred) lies at or below {MARGIN} points",
        ),
        (
            "what chance shows",
            "errors are as measured on these images. Chance adds to them, most where there is no "
            "error: a network with one looks nearer to a calibrated one than it is, and the bound "
            "does not undo that. What chance alone shows of our confidences is printed",
        ),
        (
            "accuracy",
            f"ours minus the SAM of highest mean accuracy among rho .05, .1 and .2: the one-sided "
            f"95 % bound lies at or above -{MARGIN} points",
        ),
        ("NLL", "the mean over seeds lies below that of every rival, as it is or after T"),
        ("spread", "each seed's difference is printed; a bound over images says nothing of seeds"),
    ),
)


@dataclass(frozen=True)
class BestRival:
    """The best rival in one score, before or after temperature scaling."""

    scored: ScoredRow
    after: bool
    value: float

    @property
    def name(self) -> str:
        return self.scored.name + (" after T" if self.after else "")


def best_rival(rivals: Sequence[ScoredRow], key: str) -> BestRival:
    """Return the rival of least mean, before or after temperature scaling."""
    candidates = [
        BestRival(each, after, each.mean(key, after))
        for each in rivals
        if each.records
        for after in (False, True)
    ]
    return min(candidates, key=lambda candidate: candidate.value)


def best_sam(rivals: Sequence[ScoredRow]) -> ScoredRow | None:
    """Return the SAM with a fixed radius of highest mean accuracy, or None without a run."""
    of_sam = [
        each
        for each in rivals
        if re.fullmatch(r"sam:[^+]*", each.row.method) and each.records  # SAM and nothing else
    ]
    return max(of_sam, key=lambda each: each.mean("accuracy")) if of_sam else None


# -- findings -------------------------------------------------------------------------------------


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the table of all methods, and the claims of the goal on each data set."""
    scored, examples = score_rows(setting, store, rows.comparison(setting))
    bounded = BoundedScores(examples)
    paired = PairedScores(examples)

    claims: list[Claim] = []
    shown = tables(scored, "Our method and its rivals")
    for data, group in by_data(scored).items():
        claims += goal_claims(setting, data, group, bounded)
        shown.append(paired_table(data, group, paired))
    return Findings(claims, [*shown, RULES], values_of(scored))


def network_findings(setting: Setting, store: RunStore) -> Findings:
    """Return the table and claims of a second network; one seed is reported, not judged."""
    scored, examples = score_rows(setting, store, rows.network(setting))
    bounded = BoundedScores(examples)
    network = "a small one" if setting.quick else "ResNet-56"
    claims: list[Claim] = []
    for data, group in by_data(scored).items():
        claims += goal_claims(setting, f"{network}, {data}", group, bounded)
    shown = tables(scored, f"A second network, {network}")
    return Findings(claims, [*shown, RULES], values_of(scored))


def paired_table(data: str, group: Sequence[ScoredRow], scores: PairedScores) -> Table:
    """Return paired differences between our method and each rival."""
    ours = by_name(group)[rows.OURS]
    lines = []
    for rival in group:
        result = scores.differences(rival.records, ours.records)
        if rival is not ours and result is not None:
            texts = (result.accuracy.text(), result.nll.text("+.4f"), result.ece.text())
            lines.append((rival.name, str(result.seeds), *texts))
    return Table(f"Paired differences, {data}", PAIRED_HEADER, tuple(lines), PAIRED_NOTE)


# -- claims ---------------------------------------------------------------------------------------


def goal_claims(
    setting: Setting, where: str, group: Sequence[ScoredRow], bounded: BoundedScores
) -> list[Claim]:
    """Judge the goal on one data set: two calibration errors, accuracy and NLL."""
    ours = by_name(group)[rows.OURS]
    rivals = [each for each in group if rows.is_rival(each.name)]
    sentences = [error_sentence(where, name) for name in ERRORS.values()]
    sentences += [accuracy_sentence(where), nll_sentence(where)]
    if not ours.records or not any(each.records for each in rivals):
        return claims_without_runs(*sentences)

    reasons = why_not_judged(setting, group, several=[ours])
    claims = [error_claim(where, key, ours, rivals, bounded, reasons) for key in ERRORS]
    claims.append(accuracy_claim(where, ours, rivals, bounded, reasons))
    claims.append(nll_claim(where, ours, rivals, reasons))
    return claims


def error_sentence(where: str, name: str) -> str:
    return f"{where}: {name} is not worse than the best of all by more than {MARGIN} points"


def accuracy_sentence(where: str) -> str:
    return f"{where}: accuracy is not inferior to the best SAM by more than {MARGIN} points"


def nll_sentence(where: str) -> str:
    return f"{where}: NLL is the lowest of all"


def error_claim(
    where: str,
    key: str,
    ours: ScoredRow,
    rivals: Sequence[ScoredRow],
    bounded: BoundedScores,
    reasons: Sequence[str],
) -> Claim:
    """Judge a calibration error against the best rival."""
    statement = error_sentence(where, ERRORS[key])
    best = best_rival(rivals, key)
    difference = bounded.difference(key, best.scored.records, ours.records, best.after)
    found = f"{100 * ours.mean(key):.2f} : {100 * best.value:.2f} ({best.name})"

    return bounded_claim(
        statement,
        found,
        difference,
        holds=difference is not None and difference.high <= MARGIN,
        rule=f"the one-sided 95 % bound of the difference is at most {MARGIN}",
        reasons=reasons,
    )


def accuracy_claim(
    where: str,
    ours: ScoredRow,
    rivals: Sequence[ScoredRow],
    bounded: BoundedScores,
    reasons: Sequence[str],
) -> Claim:
    """Judge the accuracy against the best SAM."""
    statement = accuracy_sentence(where)
    best = best_sam(rivals)
    if best is None:
        return claim_without_runs(statement)

    difference = bounded.difference("accuracy", best.records, ours.records)
    accuracy = f"{100 * ours.mean('accuracy'):.2f} : {100 * best.mean('accuracy'):.2f}"
    return bounded_claim(
        statement,
        f"{accuracy} ({best.name})",
        difference,
        holds=difference is not None and difference.low >= -MARGIN,
        rule=f"the one-sided 95 % bound of the difference is at least -{MARGIN}",
        reasons=reasons,
    )


def bounded_claim(
    statement: str,
    found: str,
    difference: BoundedDifference | None,
    *,
    holds: bool,
    rule: str,
    reasons: Sequence[str],
) -> Claim:
    """Return a claim that a bound judges; without a bound it is not judged."""
    known = "" if difference is not None else "of no common seed the test images are kept"
    text = f"{found}; difference {difference.text()}" if difference is not None else found
    return judge(
        statement, found=text, paper="–", holds=holds, rule=rule, reasons=[*reasons, known]
    )


def nll_claim(
    where: str, ours: ScoredRow, rivals: Sequence[ScoredRow], reasons: Sequence[str]
) -> Claim:
    """Judge the NLL against every rival."""
    best = best_rival(rivals, "nll")
    raw = min((each for each in rivals if each.records), key=lambda each: each.mean("nll"))
    found = (
        f"{ours.mean('nll'):.4f} : {best.value:.4f} ({best.name}); without post-hoc work the best "
        f"rival has {raw.mean('nll'):.4f} ({raw.name})"
    )

    return judge(
        nll_sentence(where),
        found=found,
        paper="–",
        holds=ours.mean("nll") < best.value,
        rule="below every rival by the mean over seeds, as it is or after T",
        reasons=reasons,
    )
