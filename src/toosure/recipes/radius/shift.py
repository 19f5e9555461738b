"""Corrupted images: our method as it is, against rivals after temperature scaling."""

from collections.abc import Sequence

from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import ScoredRow, by_data, by_name, score_rows
from toosure.recipes.benchmark.shift_scores import (
    corrupted_ece,
    corrupted_ece_after_temperature,
    known_text,
)
from toosure.recipes.radius import rows
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
    missing_runs,
    single_run,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_spread

RIVALS = (rows.SGD, rows.CHOSEN_SAM)
HEADER = ("row", "seeds", "ECE, clean", "ECE, 15 x 5 corruptions", "the same after T", "T")
NOTE = (
    "Mean ECE in points over 15 corruptions at 5 severities of the test images, mean ± standard "
    "deviation over seeds. T is fitted on the clean validation images. Runs are judged with "
    "`--shift all`."
)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the errors under corruptions, and whether ours is below those after a temperature."""
    scored, _ = score_rows(setting, store, rows.shift(setting))

    shown = [
        Table(f"Corruptions, {data}", HEADER, tuple(cells(e) for e in group if judged(e)), NOTE)
        for data, group in by_data(scored).items()
    ]
    claims = [
        temperature_claim(setting, data, by_name(group), rival)
        for data, group in by_data(scored).items()
        for rival in RIVALS
    ]

    values: dict[str, object] = {
        f"{each.row.data}/{each.name}": {
            "raw": raw_errors(each.records),
            "after_temperature": errors_after(each.records),
        }
        for each in scored
    }
    return Findings(claims, shown, values)


def raw_errors(records: Sequence[Record]) -> list[float]:
    """Return the ECE under corruptions of the runs that were judged on all of them."""
    return [error for record in records if (error := corrupted_ece(record)) is not None]


def errors_after(records: Sequence[Record]) -> list[float]:
    """Return the same after a temperature fitted on clean images."""
    errors = (corrupted_ece_after_temperature(record) for record in records)
    return [error for error in errors if error is not None]


def judged(scored: ScoredRow) -> list[Record]:
    """Return the records of runs that were judged on all corruptions."""
    return [record for record in scored.records if corrupted_ece(record) is not None]


def cells(scored: ScoredRow) -> tuple[str, ...]:
    """Print one row."""
    records = judged(scored)
    temperatures = [r.temperature for r in records if r.temperature is not None]
    return (
        scored.row.label,
        str(len(records)),
        known_text([record.test["ece"] for record in records]),
        known_text([corrupted_ece(record) for record in records]),
        known_text([corrupted_ece_after_temperature(record) for record in records]),
        f"{mean_and_spread(temperatures)[0]:.3f}",
    )


def temperature_claim(
    setting: Setting, data: str, group: dict[str, ScoredRow], rival: str
) -> Claim:
    """Judge: our ECE under corruptions is below that of a rival after temperature scaling."""
    says = f"{data}: on corrupted images a lower ECE than {rival} after temperature scaling"
    ours = raw_errors(group[rows.OURS].records)
    theirs = errors_after(group[rival].records)
    if not ours or not theirs:
        return claim_without_runs(says)

    mine = sum(ours) / len(ours)
    mark = sum(theirs) / len(theirs)
    return judge(
        says,
        found=f"{100 * mine:.2f} : {100 * mark:.2f} (n = {len(ours)} : {len(theirs)})",
        paper="–",
        holds=mine < mark,
        rule="by the mean over seeds",
        unless=[
            setting.why_not_judged_on_cifar,
            missing_runs(len(ours) + len(theirs), 2 * group[rows.OURS].row.expected),
            single_run(len(ours), len(theirs)),
        ],
    )
