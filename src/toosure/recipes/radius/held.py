"""Compare the steered radius with constant ASAM radii."""

from collections.abc import Sequence

from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.scored_rows import (
    ScoredRow,
    by_data,
    by_name,
    score_rows,
    why_not_judged,
)
from toosure.recipes.radius import rows
from toosure.recipes.radius.comparison import best_rival, paired_table
from toosure.recipes.radius.scores import tables, values_of
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the scores, paired differences, and the claims on NLL."""
    scored, examples = score_rows(setting, store, rows.held(setting))
    paired = PairedScores(examples)

    shown = tables(scored, "Constant radii")
    shown += [paired_table(data, group, paired) for data, group in by_data(scored).items()]
    claims = [steering_claim(setting, data, group) for data, group in by_data(scored).items()]
    return Findings(claims, shown, values_of(scored))


def steering_claim(setting: Setting, data: str, group: Sequence[ScoredRow]) -> Claim:
    """Judge whether the steered radius has a lower NLL than every constant one, also after T."""
    statement = f"{data}: a steered radius has a lower NLL than ASAM at every constant one"
    ours = by_name(group)[rows.OURS]
    constant = [each for each in group if each is not ours]
    if not ours.records or not any(each.records for each in constant):
        return claim_without_runs(statement)

    best = best_rival(constant, "nll")
    return judge(
        statement,
        found=f"{ours.mean('nll'):.4f} : {best.value:.4f} ({best.name})",
        paper="–",
        holds=ours.mean("nll") < best.value,
        rule="by the mean over seeds, against each as it is and after T",
        reasons=why_not_judged(setting, group, several=[ours]),
    )
