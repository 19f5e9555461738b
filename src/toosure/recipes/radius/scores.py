"""Scores of rows before and after temperature scaling, and their tables."""

from collections.abc import Iterable, Sequence

from toosure.recipes.benchmark.protocol import DESCRIPTION
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import ScoredRow, by_data
from toosure.recipes.commits import commits_text
from toosure.recipes.recipe import Table
from toosure.recipes.series import NOTHING, mean_std_text

TEST: dict[str, tuple[str, float, str]] = {
    "accuracy": ("accuracy %", 100, ".2f"),
    "nll": ("NLL", 1, ".4f"),
    "ece": ("ECE", 100, ".2f"),
    "debiased_ece": ("debiased ECE", 100, ".2f"),
    "smece": ("smECE", 100, ".2f"),
}
AFTER = ("nll", "ece", "debiased_ece", "smece")
HEADER = (
    *("row", "seeds", *(name for name, _, _ in TEST.values()), "confidence - accuracy"),
    *(f"{TEST[key][0]} after T" for key in AFTER),
    *("T", "validation NLL", "rho (gamma) at the end", "commit"),
)
NOTE = (
    f"ResNet-18 (CIFAR stem) unless the row says otherwise, {DESCRIPTION}; 10,000 test images at "
    "the end of training, 15 bins, errors in points, mean ± standard deviation over seeds. A "
    "control split comes from the 45,000. T is fitted on the 5,000 validation images, which no "
    "run is trained on: two and a half times as many as the controller has, so that temperature "
    "scaling is not at a disadvantage."
)


def tables(rows: Sequence[ScoredRow], title: str) -> list[Table]:
    """Return one table per data set."""
    return [
        Table(
            f"{title}, {data}", HEADER, tuple(cells(each) for each in group if each.records), NOTE
        )
        for data, group in by_data(rows).items()
    ]


def cells(scored: ScoredRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    records = scored.records
    texts = [scored.row.label, str(len(records))]
    for key, (_, scale, form) in TEST.items():
        texts.append(mean_std_text([scale * value for value in scored.values(key)], form))
    texts.append(mean_std_text(scored.overconfidence, ".2f"))

    for key in AFTER:
        _, scale, form = TEST[key]
        texts.append(mean_std_text([scale * value for value in scored.values(key, True)], form))
    texts.append(mean_std_text([record.temperature for record in records], ".3f"))
    texts.append(mean_std_text([record.val["nll"] for record in records], ".4f"))

    commits = commits_text(record.commit for record in records)
    return *texts, actuator_text(records), commits


def final_radius(record: Record) -> float | None:
    """Return the final radius of a steered run, or None if none was saved."""
    return (record.control or {}).get("rho")


def actuator_text(records: Sequence[Record]) -> str:
    """Return the final rho or gamma of steered runs as text; a dash for other runs."""
    rho = mean_std_text([final_radius(record) for record in records], ".3f")
    gamma = mean_std_text([(record.control or {}).get("gamma") for record in records])
    if gamma == NOTHING:
        return rho
    return f"gamma {gamma}" if rho == NOTHING else f"{rho}, gamma {gamma}"


def values_of(rows: Iterable[ScoredRow]) -> dict[str, object]:
    """Return the unrounded scores of each row."""
    return {
        f"{each.row.data}/{each.name}": [
            {
                "seed": record.config.seed,
                "test": record.test,
                "after_temperature": record.test_after_temperature,
                "val": record.val,
                "control": record.control,
            }
            for record in each.records
        ]
        for each in rows
    }
