"""Choose the combination of method and controller, by validation images alone."""

import math
from collections.abc import Sequence

from toosure.recipes.benchmark.score_files import score_files
from toosure.recipes.benchmark.scored_rows import (
    Row,
    ScoredRow,
    by_data,
    missing_in,
    score_rows,
    with_records,
)
from toosure.recipes.radius import rows
from toosure.recipes.radius.scores import TEST, actuator_text
from toosure.recipes.recipe import Claim, Findings, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text

HEADER = ("combination", *(name for name, _, _ in TEST.values()), "rho (gamma) at the end")
NOTE = (
    "The 5,000 validation images at the end of training; test images are not looked at. "
    "Returned: the control split is trained on for the last tenth, the radius held. An EMA is "
    "judged by its own predictions, and the controller looks at it."
)
RULE = (
    "least geometric mean of the validation NLL over the data sets, and over seeds 0 to 2 between "
    "the two that are least at seed 0: one setting for all"
)
FINALISTS = 2
Means = dict[str, float]  # by name of the combination, the least first


def all_rows(setting: Setting) -> list[Row]:
    """Return every combination, and more seeds of the finalists once saved scores name them."""
    each = rows.combinations(setting)
    scored = with_records(each, score_files(setting))
    if missing_in(scored):
        return each
    return [*each, *finalists(setting, validation_means(scored))]


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the validation scores of each combination, and the choice."""
    scored, _ = score_rows(setting, store, rows.combinations(setting))
    last, _ = score_rows(setting, store, finalists(setting, validation_means(scored)))

    shown = tables("Combinations", scored) + tables("The two finalists", last)
    values = {
        f"{each.row.data}/{each.name}": [record.val for record in each.records]
        for each in [*scored, *last]
    }
    return Findings([choice(setting, scored, last)], shown, dict(values))


def finalists(setting: Setting, means: Means) -> list[Row]:
    """Return the combinations of least mean, with the seeds of the comparison."""
    names = list(means)[:FINALISTS]
    several = rows.combinations(setting, rows.seeds(setting))
    return [row for row in several if row.name in names]


def tables(title: str, scored: Sequence[ScoredRow]) -> list[Table]:
    """Return one table per data set."""
    return [
        Table(f"{title}, {data}", HEADER, tuple(cells(e) for e in group if e.records), NOTE)
        for data, group in by_data(scored).items()
    ]


def cells(scored: ScoredRow) -> tuple[str, ...]:
    """Return the validation scores of one combination as cells."""
    texts = [
        mean_std_text([scale * record.val[key] for record in scored.records], form)
        for key, (_, scale, form) in TEST.items()
    ]
    return scored.row.label, *texts, actuator_text(scored.records)


def choice(setting: Setting, scored: Sequence[ScoredRow], last: Sequence[ScoredRow]) -> Claim:
    """Report the chosen combination: the better finalist, once all their runs exist."""
    statement = "the combination that is taken"
    first = validation_means(scored)
    missing = missing_in(scored) or missing_in(last)
    if not first:
        return Claim(statement, "–", note=missing)

    means = validation_means(last) if not missing else first
    method = {each.name: each.row.method for each in scored}[next(iter(means))]
    found = f"`{method}`: {means_text(means)}"
    if means is not first:
        found += f"; at seed {setting.first_seed} {means_text(first)}"
    if rows.our_method(setting) != method:
        found += f"; compared below is `{rows.our_method(setting)}`"
    return Claim(
        statement, found, note="; ".join(filter(None, [f"a choice, not a claim: {RULE}", missing]))
    )


def means_text(means: Means) -> str:
    """Return the four least means as text."""
    return ", ".join(f"{name} {mean:.4f}" for name, mean in list(means.items())[:4])


def validation_means(scored: Sequence[ScoredRow]) -> Means:
    """Return the geometric mean validation NLL of combinations with all their runs."""
    expected: dict[str, int] = {}
    logs: dict[str, list[float]] = {}
    for each in scored:
        expected[each.name] = expected.get(each.name, 0) + each.row.expected
        logs.setdefault(each.name, []).extend(math.log(r.val["nll"]) for r in each.records)

    means = {
        name: math.exp(sum(values) / len(values))
        for name, values in logs.items()
        if values and len(values) == expected[name]
    }
    return dict(sorted(means.items(), key=lambda pair: pair[1]))
