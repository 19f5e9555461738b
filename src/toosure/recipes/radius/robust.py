"""What should not matter, what was changed one at a time, and what the looks cost."""

from collections.abc import Sequence

from toosure.config import RunConfig
from toosure.control import Radius
from toosure.optim import SAM
from toosure.recipes.benchmark.score_files import Record
from toosure.recipes.radius import rows
from toosure.recipes.radius.scores import (
    Scored,
    by_data,
    final_radius,
    named,
    scored_rows,
    tables,
    values_of,
)
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claims_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore
from toosure.train.control import settings_of, split_size

SAME_RADIUS = 0.25  # share by which radii at the end may differ
MAX_SHARE = 0.03  # of the time of training, for looks
STARTS = ("start ten times smaller", "start ten times larger")
COST_HEADER = ("data", "looks", "seconds per look", "seconds of training", "share %")
COST_NOTE = (
    "Looks times what one takes, over the seconds of training without measurements. The device is "
    "waited for before and after a look, so that steps in flight are not counted."
)
TRAINING_IMAGES = {"digits": 128}


# -- robust ---------------------------------------------------------------------------------------


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return what other starts, splits, batches and wrong labels change."""
    scored, _ = scored_rows(setting, store, rows.robust(setting))
    claims: list[Claim] = []
    for data, group in by_data(scored).items():
        claims += [start_claim(setting, data, named(group), name) for name in STARTS]
        claims.append(reported(data, group))
    return Findings(claims, tables(scored, "What should not matter"), values_of(scored))


def start_claim(setting: Setting, data: str, group: dict[str, Scored], name: str) -> Claim:
    """Judge: another start ends within a quarter of the same radius."""
    says = f"{data}: {name}, and the radius ends within 25 % of the same"
    pair = [radius_of(group[each]) for each in (name, rows.OURS)]
    if pair[0] is None or pair[1] is None:
        return claims_without_runs(says)[0]

    radius, same = pair
    return judge(
        says,
        found=f"{radius:.3f} : {same:.3f}",
        paper="–",
        holds=abs(radius / same - 1) <= SAME_RADIUS,
        rule="one seed; the radius of the last step, over that of the usual start",
        unless=["judged on CIFAR-10 and CIFAR-100 only" if setting.quick else ""],
    )


def radius_of(scored: Scored) -> float | None:
    """Return the radius at the end of a row's one run; None where it was not kept."""
    return final_radius(scored.records[0]) if scored.records else None


def reported(data: str, group: Sequence[Scored]) -> Claim:
    """Say what the other rows came to; the issue sets no bound for them."""
    others = [each for each in group if each.name not in (*STARTS, rows.OURS) and each.records]
    texts = [f"{each.name} {100 * each.mean('ece'):.2f}" for each in others]
    return Claim(
        f"{data}: ECE with other splits, batches and wrong labels",
        ", ".join(texts) or "–",
        note="reported only: no bound was set",
    )


def ablations(setting: Setting, store: RunStore) -> Findings:
    """Return what each piece of the controller is worth, with one seed: reported."""
    scored, _ = scored_rows(setting, store, rows.ablations(setting))
    return Findings([], tables(scored, "One thing changed at a time"), values_of(scored))


# -- cost -----------------------------------------------------------------------------------------


def cost_findings(setting: Setting, store: RunStore) -> Findings:
    """Return the share of the time that looks at the control split take."""
    scored, _ = scored_rows(setting, store, rows.cost(setting))
    lines = []
    claims: list[Claim] = []
    values: dict[str, object] = {}
    for each in scored:
        says = f"{each.row.data}: looks take at most 3 % of the time"
        timed = [record for record in each.records if "look_seconds" in (record.control or {})]
        if not timed:
            claims += claims_without_runs(says)
            continue

        record = timed[0]
        share = look_share(record)
        values[each.row.data] = share
        lines.append(cost_cells(each.row.data, record, share))
        claims.append(
            judge(
                says,
                found=f"{100 * share:.2f} %",
                paper="–",
                holds=share <= MAX_SHARE,
                rule="looks times seconds per look, over the seconds of training",
                unless=["judged on CIFAR-10 and CIFAR-100 only" if setting.quick else ""],
            )
        )
    return Findings(claims, [Table("Cost", COST_HEADER, tuple(lines), COST_NOTE)], values)


def cost_cells(data: str, record: Record, share: float) -> tuple[str, ...]:
    """Print what the looks of a run took."""
    seconds = (record.control or {})["look_seconds"]
    return (
        data,
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
    passes = 2 if issubclass(config.word("optimizer").method.target, SAM) else 1
    every = settings.interval(split_size(settings, images), config.batch, passes)
    return sum(
        looks_at(settings, config.steps, step) for step in range(every, config.steps + 1, every)
    )


def looks_at(settings: Radius, steps: int, step: int) -> bool:
    """Whether a look that is due after a step is taken."""
    returned = settings.return_step(steps)
    if returned is not None and step > returned:
        return False
    return settings.start <= step / steps <= settings.until
