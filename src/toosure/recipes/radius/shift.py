"""Compare our method on corrupted images with rivals after temperature scaling."""

from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import (
    Rows,
    ScoredRow,
    by_data,
    by_name,
    score_rows,
    why_not_judged,
)
from toosure.recipes.benchmark.shift_scores import (
    corrupted_ece,
    corrupted_ece_after_temperature,
)
from toosure.recipes.radius import rows
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import in_points, mean_and_std, mean_std_text

RIVALS = (rows.SGD, rows.CHOSEN_SAM)
HEADER = ("row", "seeds", "ECE, clean", "ECE, 15 x 5 corruptions", "the same after T", "T")
NOTE = (
    "Mean ECE in points over 15 corruptions at 5 severities of the test images, mean ± standard "
    "deviation over seeds. T is fitted on the clean validation images. Runs are judged with "
    "`--shift all`."
)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the errors under corruptions, and the claims against rivals after a temperature."""
    scored, _ = score_rows(setting, store, rows.shift(setting))
    judged = [ScoredRow(each.row, judged_records(each)) for each in scored]

    tables = [
        Table(f"Corruptions, {data}", HEADER, tuple(cells(e) for e in group if e.records), NOTE)
        for data, group in by_data(judged).items()
    ]
    claims = [
        temperature_claim(setting, data, by_name(group), rival)
        for data, group in by_data(judged).items()
        for rival in RIVALS
    ]

    values: dict[str, object] = {
        f"{each.row.data}/{each.name}": {
            "raw": raw_errors(each),
            "after_temperature": errors_after(each),
        }
        for each in judged
    }
    return Findings(claims, tables, values)


def judged_records(scored: ScoredRow) -> list[Record]:
    """Return the records of runs that were judged on all corruptions."""
    return [record for record in scored.records if corrupted_ece(record) is not None]


def raw_errors(scored: ScoredRow) -> list[float]:
    """Return the ECE under corruptions, per seed."""
    return [error for record in scored.records if (error := corrupted_ece(record)) is not None]


def errors_after(scored: ScoredRow) -> list[float]:
    """Return the ECE under corruptions after a temperature fitted on clean images, per seed."""
    errors = (corrupted_ece_after_temperature(record) for record in scored.records)
    return [error for error in errors if error is not None]


def cells(scored: ScoredRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    records = scored.records
    temperatures = [r.temperature for r in records if r.temperature is not None]
    return (
        scored.row.label,
        str(len(records)),
        mean_std_text(scored.points("ece")),
        mean_std_text(in_points(map(corrupted_ece, records))),
        mean_std_text(in_points(map(corrupted_ece_after_temperature, records))),
        f"{mean_and_std(temperatures)[0]:.3f}",
    )


def temperature_claim(setting: Setting, data: str, group: Rows, rival: str) -> Claim:
    """Judge whether our ECE under corruptions is below a rival's after temperature scaling."""
    statement = f"{data}: on corrupted images a lower ECE than {rival} after temperature scaling"
    pair = [group[rows.OURS], group[rival]]
    ours = raw_errors(group[rows.OURS])
    theirs = errors_after(group[rival])
    if not ours or not theirs:
        return claim_without_runs(statement)

    our_mean = sum(ours) / len(ours)
    rival_mean = sum(theirs) / len(theirs)
    return judge(
        statement,
        found=f"{100 * our_mean:.2f} : {100 * rival_mean:.2f} (n = {len(ours)} : {len(theirs)})",
        paper="–",
        holds=our_mean < rival_mean,
        rule="by the mean over seeds",
        reasons=why_not_judged(setting, pair, several=pair),
    )
