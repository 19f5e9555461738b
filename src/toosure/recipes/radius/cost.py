"""The cost of measuring the control split, as a share of the training time."""

from toosure.config import RunConfig
from toosure.optim import SAM
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import score_rows
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
from toosure.train.control import refresh_size, settings_of, split_size

MAX_SHARE = 0.03
HEADER = ("data", "seed", "looks", "seconds per look", "seconds of training", "share %")
NOTE = (
    "Looks times what one takes, over the seconds of training without measurements. The device is "
    "waited for before and after a look, so that steps in flight are not counted."
)
TRAINING_IMAGES = {"digits": 128}  # of a quick recipe


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the share of training time that looks at the control split take."""
    scored, _ = score_rows(setting, store, rows.cost(setting))
    lines = []
    claims: list[Claim] = []
    values: dict[str, object] = {}
    for each in scored:
        statement = f"{each.row.data}: looks take at most 3 % of the time"
        timed = [record for record in each.records if "look_seconds" in (record.control or {})]
        if not timed:
            claims.append(claim_without_runs(statement))
            continue

        shares = [look_share(record) for record in timed]
        share = max(shares)
        values[each.row.data] = share
        lines += [cells(each.row.data, *pair) for pair in zip(timed, shares, strict=True)]
        claims.append(
            judge(
                statement,
                found=f"{100 * share:.2f} %",
                paper="–",
                holds=share <= MAX_SHARE,
                rule="seconds of looks over those of training; the largest of the seeds",
                reasons=[setting.why_not_judged_on_cifar],
            )
        )
    return Findings(claims, [Table("Cost", HEADER, tuple(lines), NOTE)], values)


def cells(data: str, record: Record, share: float) -> tuple[str, ...]:
    """Return the cells of one run: its looks, their time and share."""
    seconds = (record.control or {})["look_seconds"]
    return (
        data,
        str(record.config.seed),
        str(looks_of(record.config)),
        f"{seconds:.4f}",
        f"{record.training_seconds:.1f}",
        f"{100 * share:.2f}",
    )


def look_share(record: Record) -> float:
    """Return the share of a run's time that its looks took."""
    seconds = (record.control or {})["look_seconds"]
    return looks_of(record.config) * seconds / record.training_seconds


def looks_of(config: RunConfig) -> int:
    """Return how often a run looks at its control split."""
    settings = settings_of(config)
    images = TRAINING_IMAGES.get(config.data.partition(":")[0], rows.TRAINING_IMAGES)
    optimizer = config.word("optimizer").method.target
    passes = 2 if isinstance(optimizer, type) and issubclass(optimizer, SAM) else 1
    size = split_size(settings, images)
    examples = size + refresh_size(settings, images - size)
    every = settings.interval(examples, config.batch, passes, config.steps)
    due = range(every, config.steps + 1, every)
    return sum(settings.looks_after(step, config.steps) for step in due)
