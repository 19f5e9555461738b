"""Which combination is taken: by validation images alone, at one seed."""

import math
from collections.abc import Sequence

from toosure.recipes.benchmark.scored_rows import by_data, missing_in
from toosure.recipes.radius import rows
from toosure.recipes.radius.scores import TEST, Scored, radius_text, scored_rows
from toosure.recipes.recipe import Claim, Findings, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import spread_text

HEADER = ("combination", *(name for name, _, _ in TEST.values()), "rho at the end")
NOTE = (
    "The 5,000 validation images at the end of training; test images are not looked at. "
    "Returned: the control split is trained on for the last tenth, the radius held. An EMA is "
    "judged by its own predictions, and the controller looks at it."
)
RULE = (
    "least geometric mean of the validation NLL over the data sets, and over seeds 0 to 2 between "
    "the two that are least at seed 0: one setting for all"
)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the validation scores of each combination, and which is taken."""
    scored, _ = scored_rows(setting, store, rows.combinations(setting))
    shown = [
        Table(f"Combinations, {data}", HEADER, tuple(cells(e) for e in group if e.records), NOTE)
        for data, group in by_data(scored).items()
    ]
    values = {f"{e.row.data}/{e.name}": [r.val for r in e.records] for e in scored}
    return Findings([choice(setting, scored)], shown, dict(values))


def cells(scored: Scored) -> tuple[str, ...]:
    """Print the validation scores of one combination."""
    texts = [
        spread_text([scale * record.val[key] for record in scored.records], form)
        for key, (_, scale, form) in TEST.items()
    ]
    return f"{scored.name} (`{scored.row.method}`)", *texts, radius_text(scored.records)


def choice(setting: Setting, scored: Sequence[Scored]) -> Claim:
    """Say which combination has the least validation NLL over the data sets.

    Where the command names the one that was taken, say where that stands: it may have been taken
    by runs that were repeated since.
    """
    says = "the combination that is taken"
    missing = missing_in(scored)
    means = validation_means(scored)
    if not means:
        return Claim(says, "–", note=missing)

    ranking = sorted(means, key=lambda name: means[name])
    methods = {each.name: each.row.method for each in scored}
    found = f"`{methods[ranking[0]]}`"
    if setting.methods:
        means_by_method = {methods[name]: mean for name, mean in means.items()}
        taken = rows.ours(setting)
        found = f"`{taken}`, {means_by_method.get(taken, math.nan):.4f}; the least now"

    least = ", ".join(f"{name} {means[name]:.4f}" for name in ranking[:4])
    note = f"a choice, not a claim: {RULE}" + (f"; {missing}" if missing else "")
    return Claim(says, f"{found}: {least}", note=note)


def validation_means(scored: Sequence[Scored]) -> dict[str, float]:
    """Return the geometric mean of the validation NLL of combinations that have all their runs."""
    expected: dict[str, int] = {}
    for each in scored:
        expected[each.name] = expected.get(each.name, 0) + len(each.row.seeds)

    logs: dict[str, list[float]] = {}
    for each in scored:
        for record in each.records:
            logs.setdefault(each.name, []).append(math.log(record.val["nll"]))
    return {
        name: math.exp(sum(values) / len(values))
        for name, values in logs.items()
        if len(values) == expected[name]
    }
