"""Robustness to start, split, batch size and label noise; ablations."""

from collections.abc import Sequence

from toosure.recipes.benchmark.scored_rows import ScoredRow, by_data, by_name, score_rows
from toosure.recipes.radius import robust_rows, rows
from toosure.recipes.radius.scores import final_radius, tables, values_of
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore

SAME_RADIUS = 0.25  # share by which radii at the end may differ
STARTS = ("start ten times smaller", "start ten times larger")


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the scores with other starts, splits, batches and wrong labels."""
    scored, _ = score_rows(setting, store, robust_rows.robust(setting))
    claims: list[Claim] = []
    for data, group in by_data(scored).items():
        claims += [start_claim(setting, data, by_name(group), name) for name in STARTS]
        claims.append(reported(data, group))
    return Findings(claims, tables(scored, "What should not matter"), values_of(scored))


def start_claim(setting: Setting, data: str, group: dict[str, ScoredRow], name: str) -> Claim:
    """Judge whether another start ends within a quarter of the same radius."""
    statement = f"{data}: {name}, and the radius ends within 25 % of the same"
    radius = radius_of(group[name])
    same = radius_of(group[rows.OURS])
    if radius is None or same is None:
        return claim_without_runs(statement)

    return judge(
        statement,
        found=f"{radius:.3f} : {same:.3f}",
        paper="–",
        holds=abs(radius / same - 1) <= SAME_RADIUS,
        rule="one seed; the radius of the last step, over that of the usual start",
        reasons=[setting.why_not_judged_on_cifar],
    )


def radius_of(scored: ScoredRow) -> float | None:
    """Return the final radius of a row's one run, or None if it was not saved."""
    return final_radius(scored.records[0]) if scored.records else None


def reported(data: str, group: Sequence[ScoredRow]) -> Claim:
    """Report the ECE of the other rows, for which no bound was set."""
    others = [each for each in group if each.name not in (*STARTS, rows.OURS) and each.records]
    texts = [f"{each.name} {100 * each.mean('ece'):.2f}" for each in others]
    return Claim(
        f"{data}: ECE with other splits, batches and wrong labels",
        ", ".join(texts) or "–",
        note="reported only: no bound was set",
    )


def ablations(setting: Setting, store: RunStore) -> Findings:
    """Return the scores without each piece of the controller; one seed, reported only."""
    scored, _ = score_rows(setting, store, robust_rows.ablations(setting))
    return Findings([], tables(scored, "One thing changed at a time"), values_of(scored))
