"""Rows of tables: the runs that each shows, and what was scored of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.protocol import COMMON, Size
from toosure.recipes.benchmark.record import Examples, Record
from toosure.recipes.benchmark.score_files import ScoreFiles, score_files
from toosure.recipes.recipe import RunMixture, Setting, missing_runs, single_run
from toosure.recipes.run_store import RunStore

ExamplesByRun = dict[str, Examples]  # by the name of the run or mixture


@dataclass(frozen=True)
class Row:
    """A row of a table: its runs, and the paper's figures beside it.

    A row shows single runs (`configs`), or mixtures of runs instead. `also` are runs that it shows
    where their scores are saved, and that are not trained for it. `expected` says how many records
    it has where nothing is missing.
    """

    name: str
    configs: tuple[RunConfig, ...]
    expected: int
    method: str = ""
    data: str = ""
    size: Size = COMMON
    figures: Mapping[str, str] = field(default_factory=dict, hash=False)
    mixtures: tuple[RunMixture, ...] = ()
    also: tuple[RunConfig, ...] = ()

    @property
    def label(self) -> str:
        """The name and what was trained, as tables print them."""
        if self.mixtures:
            return f"{self.name} ({len(self.mixtures[0].members)} runs of `{self.method}`)"
        return f"{self.name} (`{self.method}`)"

    @property
    def trained(self) -> list[RunConfig]:
        """The runs that are trained for it: its own, and the members of its mixtures."""
        return [*self.configs, *(each for mixture in self.mixtures for each in mixture.members)]

    @property
    def record_names(self) -> list[str]:
        """The names of the runs and mixtures that it shows, each once."""
        names = [config.name for config in (*self.configs, *self.also)]
        names += [mixture.name for mixture in self.mixtures]
        return list(dict.fromkeys(names))


def configs_of(rows: Iterable[Row]) -> list[RunConfig]:
    """Return the runs that are trained for these rows."""
    return [config for row in rows for config in row.trained]


def protocol_row(
    setting: Setting,
    name: str,
    method: str,
    data: str,
    seeds: Sequence[int],
    size: Size = COMMON,
    figures: Mapping[str, str] | None = None,
    *,
    measure: tuple[str, ...] = (),
    measure_at: Sequence[float] = (1.0,),
) -> Row:
    """Return a row of runs by the common protocol, one per seed.

    Where a word of the method does not exist, the row has no run, and all of them are missing.
    """
    configs = protocol.configs(setting, method, data, seeds, size, measure, measure_at)
    return Row(name, tuple(configs), len(seeds), method, data, size, figures or {})


@dataclass
class ScoredRow:
    """A row with the records of its finished runs, one per seed."""

    row: Row
    records: list[Record]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def missing(self) -> int:
        """How many records it lacks; 0 where it has more than were expected."""
        return max(0, self.row.expected - len(self.records))

    def values(self, key: str, after: bool = False) -> list[float]:
        """Return a score of the test images, per seed; none after a temperature without one."""
        scores = (scores_on_test(record, after) for record in self.records)
        return [each[key] for each in scores if each]

    def points(self, key: str) -> list[float]:
        """Return a score of the test images in points, per seed."""
        return [100 * value for value in self.values(key)]

    def mean(self, key: str, after: bool = False) -> float:
        """Return the mean of a score over seeds; NaN without runs."""
        values = self.values(key, after)
        return float(np.mean(values)) if values else float("nan")

    def validation_mean(self, key: str) -> float:
        """Return the mean over seeds of a score of the validation images; NaN without runs."""
        values = [record.val[key] for record in self.records]
        return float(np.mean(values)) if values else float("nan")

    @property
    def overconfidence(self) -> list[float]:
        """Confidence minus accuracy on the test images, in points, per seed."""
        return [100 * (r.test["confidence"] - r.test["accuracy"]) for r in self.records]


Rows = Mapping[str, ScoredRow]  # by name


def scores_on_test(record: Record, after: bool) -> dict[str, float]:
    """Return the scores of the test images, as they are or after the temperature."""
    return record.test_after_temperature if after else record.test


# -- scoring --------------------------------------------------------------------------------------


def score_rows(
    setting: Setting, store: RunStore, rows: Sequence[Row], keep_examples: bool = True
) -> tuple[list[ScoredRow], ExamplesByRun]:
    """Score the runs and mixtures that are new; return all rows with their records.

    Also return what is saved of each test image. Without `keep_examples` no new run saves any.
    """
    files = score_files(setting)
    files.add((run for row in rows for run in store.runs(row.configs)), keep_examples)
    files.add_mixtures((mixture for row in rows for mixture in row.mixtures), store)
    return with_records(rows, files), files.examples


def with_records(rows: Iterable[Row], files: ScoreFiles) -> list[ScoredRow]:
    """Return rows with the records that there are of their runs and mixtures."""
    records = files.records | files.mixtures
    return [
        ScoredRow(row, [records[name] for name in row.record_names if name in records])
        for row in rows
    ]


# -- several rows ---------------------------------------------------------------------------------


def missing_in(rows: Iterable[ScoredRow]) -> str:
    """Say how many runs of these rows are missing; empty where none is."""
    counts = [(each.missing, each.row.expected) for each in rows]
    expected = sum(of_row for _, of_row in counts)
    return missing_runs(expected - sum(missing for missing, _ in counts), expected)


def why_not_judged(
    setting: Setting, rows: Iterable[ScoredRow], several: Iterable[ScoredRow] = ()
) -> list[str]:
    """Return the reasons not to judge a claim on these rows; empty texts where there is none.

    It is judged on full runs of the CIFAR sets, once none is missing, and where each row in
    `several` has more than one.
    """
    return [
        setting.why_not_judged_on_cifar,
        missing_in(rows),
        single_run(*(len(each.records) for each in several)),
    ]


def by_data(rows: Iterable[ScoredRow]) -> dict[str, list[ScoredRow]]:
    """Group rows by data set, in order."""
    groups: dict[str, list[ScoredRow]] = {}
    for each in rows:
        groups.setdefault(each.row.data, []).append(each)
    return groups


def by_name(rows: Iterable[ScoredRow]) -> dict[str, ScoredRow]:
    return {each.name: each for each in rows}
