"""Rows of a table with the kept scores of their runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from toosure.recipes.benchmark.record import Record
from toosure.recipes.recipe import missing_runs


class TableRow(Protocol):
    """What a row of a table says of itself."""

    @property
    def name(self) -> str: ...

    @property
    def data(self) -> str: ...

    @property
    def seeds(self) -> Sequence[int]: ...


RowKind = TypeVar("RowKind", bound=TableRow)


@dataclass
class ScoredRow(Generic[RowKind]):
    """A row with the records of its finished runs, one per seed."""

    row: RowKind
    records: list[Record]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def missing(self) -> int:
        return len(self.row.seeds) - len(self.records)

    def values(self, key: str, after: bool = False) -> list[float]:
        """Return a score of the test images, per seed; older records may lack one."""
        return [scores[key] for r in self.records if key in (scores := scores_on_test(r, after))]

    def mean(self, key: str, after: bool = False) -> float:
        """Return the mean of a score over seeds; NaN without runs."""
        values = self.values(key, after)
        return float(np.mean(values)) if values else float("nan")


def scores_on_test(record: Record, after: bool) -> dict[str, float]:
    """Return the scores of the test images, as they are or after the temperature."""
    return record.test_after_temperature if after else record.test


def with_records(
    row: RowKind, names: Iterable[str], known: Mapping[str, Record]
) -> ScoredRow[RowKind]:
    """Return a row with the records that there are of the runs of these names."""
    return ScoredRow(row, [known[name] for name in names if name in known])


def missing_in(rows: Iterable[ScoredRow[RowKind]]) -> str:
    """Say how many runs of these rows are missing; empty where none is."""
    counts = [(len(each.records), len(each.row.seeds)) for each in rows]
    return missing_runs(sum(n for n, _ in counts), sum(seeds for _, seeds in counts))


def by_data(rows: Iterable[ScoredRow[RowKind]]) -> dict[str, list[ScoredRow[RowKind]]]:
    """Group rows by data set, in order."""
    groups: dict[str, list[ScoredRow[RowKind]]] = {}
    for each in rows:
        groups.setdefault(each.row.data, []).append(each)
    return groups


def by_name(rows: Iterable[ScoredRow[RowKind]]) -> dict[str, ScoredRow[RowKind]]:
    return {each.name: each for each in rows}
