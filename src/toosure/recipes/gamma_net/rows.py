"""A row of gamma-net's tables: a method with what is kept of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.score_files import ScoreFiles, score_files
from toosure.recipes.recipe import Setting, missing_runs
from toosure.recipes.run_store import RunStore

OURS = "gamma-net + SECE"
ALONE = "SECE alone"
ONE_RATE = "gamma-net, one rate"  # the defaults of before: no fast level
ERRORS = {
    "ECE": "ece",
    "MCE": "mce",
    "AdaECE": "adaptive_ece",
    "classwise ECE": "classwise_ece",
}


@dataclass(frozen=True)
class MethodRow:
    """A method on one data set, with the records of its finished runs."""

    name: str
    expected: int
    records: tuple[Record, ...] = ()

    def values(self, key: str) -> list[float]:
        """Return a score of the test images, per seed."""
        return [record.test[key] for record in self.records]

    def points(self, key: str) -> list[float]:
        """Return a score of the test images in points, per seed."""
        return [100 * value for value in self.values(key)]

    def mean(self, key: str) -> float:
        return float(np.mean(self.values(key)))

    def validation_mean(self, key: str) -> float:
        """Return the mean over seeds of a score of the validation images; NaN if one lacks it."""
        return float(np.mean([record.val.get(key, np.nan) for record in self.records]))

    @property
    def overconfidence(self) -> list[float]:
        """Confidence minus accuracy on the test images, in points, per seed."""
        return [100 * (r.test["confidence"] - r.test["accuracy"]) for r in self.records]


Rows = dict[str, MethodRow]  # by the method's name


def row_of(files: ScoreFiles, name: str, configs: Sequence[RunConfig]) -> MethodRow:
    """Return a row with the records that there are of its runs."""
    records = [files.records[each.name] for each in configs if each.name in files.records]
    return MethodRow(name, len(configs), tuple(records))


def scored_rows(
    setting: Setting, store: RunStore, configs: Mapping[str, Sequence[RunConfig]]
) -> Rows:
    """Score the finished runs that are new; return a row per name with what is kept of its runs.

    Nothing is kept of single test images: no table of these rows compares runs image by image.
    """
    files = score_files(setting)
    for of_row in configs.values():
        files.add(store.runs(of_row), keep_examples=False)
    return {name: row_of(files, name, of_row) for name, of_row in configs.items()}


def missing_in(*rows: MethodRow) -> str:
    """Say how many runs of these rows are missing; empty where none is."""
    present = sum(len(row.records) for row in rows)
    return missing_runs(present, sum(row.expected for row in rows))


def unrounded(rows: Rows) -> dict[str, list[dict[str, float]]]:
    """Return the test scores of every run by row, for the JSON file."""
    return {name: [record.test for record in row.records] for name, row in rows.items()}


def along_training(record: Record, key: str) -> list[float]:
    """Return a number of each row of a run; raise ValueError where it was not kept."""
    rows = record.rows or []
    if not rows or any(key not in row for row in rows):
        raise ValueError(
            f"what is kept of {record.name} lacks {key} along training: delete its line in "
            "scores.jsonl, or its run folder, and repeat the command"
        )
    return [row[key] for row in rows]
