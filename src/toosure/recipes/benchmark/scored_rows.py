"""Rows of tables: the runs that each row shows, and the scores of these runs."""

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

    A row shows single runs (`configs`) or mixtures of runs. It also shows the runs in `also` if
    their scores are saved; these are not trained for it. `expected` is the number of records of a
    complete row.
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
        """The name and the method, as tables print them."""
        if self.mixtures:
            return f"{self.name} ({len(self.mixtures[0].members)} runs of `{self.method}`)"
        return f"{self.name} (`{self.method}`)"

    @property
    def trained(self) -> list[RunConfig]:
        """The runs to train for this row: its own and the members of its mixtures."""
        return [*self.configs, *(each for mixture in self.mixtures for each in mixture.members)]

    @property
    def record_names(self) -> list[str]:
        """The names of its runs and mixtures, each once."""
        names = [config.name for config in (*self.configs, *self.also)]
        names += [mixture.name for mixture in self.mixtures]
        return list(dict.fromkeys(names))


def configs_of(rows: Iterable[Row]) -> list[RunConfig]:
    """Return the runs to train for these rows."""
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

    If a word of the method is unknown, the row has no run and counts all of them as missing.
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
        """How many records it lacks; 0 if it has more than expected."""
        return max(0, self.row.expected - len(self.records))

    def values(self, key: str, after: bool = False) -> list[float]:
        """Return a score of the test images per seed; `after` skips runs without a temperature."""
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
        """Return the mean of a score of the validation images over seeds; NaN without runs."""
        values = [record.val[key] for record in self.records]
        return float(np.mean(values)) if values else float("nan")

    @property
    def overconfidence(self) -> list[float]:
        """Confidence minus accuracy on the test images, in points, per seed."""
        return [100 * (r.test["confidence"] - r.test["accuracy"]) for r in self.records]


Rows = Mapping[str, ScoredRow]  # by name


def scores_on_test(record: Record, after: bool) -> dict[str, float]:
    """Return the scores of the test images, before or after the temperature."""
    return record.test_after_temperature if after else record.test


# -- scoring --------------------------------------------------------------------------------------


def score_rows(
    setting: Setting, store: RunStore, rows: Sequence[Row], save_examples: bool = True
) -> tuple[list[ScoredRow], ExamplesByRun]:
    """Score the runs and mixtures that are new; return all rows with their records, and examples.

    The examples hold per-image values by run. Without `save_examples` no new run saves any.
    """
    files = score_files(setting)
    files.add((run for row in rows for run in store.runs(row.configs)), save_examples)
    files.add_mixtures((mixture for row in rows for mixture in row.mixtures), store)
    return with_records(rows, files), files.examples


def with_records(rows: Iterable[Row], files: ScoreFiles) -> list[ScoredRow]:
    """Return rows with the available records of their runs and mixtures."""
    records = files.records | files.mixtures
    return [
        ScoredRow(row, [records[name] for name in row.record_names if name in records])
        for row in rows
    ]


# -- several rows ---------------------------------------------------------------------------------


def missing_in(rows: Iterable[ScoredRow]) -> str:
    """Return a text with the number of missing runs of these rows; empty if none is missing."""
    counts = [(each.missing, each.row.expected) for each in rows]
    expected = sum(of_row for _, of_row in counts)
    return missing_runs(expected - sum(missing for missing, _ in counts), expected)


def why_not_judged(
    setting: Setting, rows: Iterable[ScoredRow], several: Iterable[ScoredRow] = ()
) -> list[str]:
    """Return the reasons not to judge a claim on these rows; a reason that does not apply is empty.

    A claim needs full runs on the CIFAR sets and no missing run. Each row in `several` needs more
    than one run.
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
