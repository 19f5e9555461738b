"""The rows of gamma-net's tables, and numbers of their records along training."""

from collections.abc import Mapping, Sequence

from toosure.config import RunConfig
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import Row, Rows, by_name, score_rows
from toosure.recipes.recipe import Setting
from toosure.recipes.run_store import RunStore

OURS = "gamma-net + SECE"
ALONE = "SECE alone"
ONE_RATE = "gamma-net, one rate"  # the earlier defaults: no fast level
ERRORS = {
    "ECE": "ece",
    "MCE": "mce",
    "AdaECE": "adaptive_ece",
    "classwise ECE": "classwise_ece",
}


def score_configs(
    setting: Setting,
    store: RunStore,
    configs: Mapping[str, Sequence[RunConfig]],
    expected: int | None = None,
) -> Rows:
    """Score the finished runs that are new; return a row per name.

    A row expects all of its runs, or `expected` of them. Nothing is saved of single test images,
    because no table compares these runs image by image.
    """
    rows = [
        Row(name, tuple(of_row), len(of_row) if expected is None else expected)
        for name, of_row in configs.items()
    ]
    scored, _ = score_rows(setting, store, rows, save_examples=False)
    return by_name(scored)


def unrounded(rows: Rows) -> dict[str, list[dict[str, float]]]:
    """Return the test scores of every run by row, for the JSON file."""
    return {name: [record.test for record in row.records] for name, row in rows.items()}


def along_training(record: Record, key: str) -> list[float]:
    """Return a number from each row of a run; raise ValueError if it was not saved."""
    rows = record.rows or []
    if not rows or any(key not in row for row in rows):
        raise ValueError(
            f"what is kept of {record.name} lacks {key} along training: delete its line in "
            "scores.jsonl, or its run folder, and repeat the command"
        )
    return [row[key] for row in rows]
