"""A row of the tables by the common protocol: a method with the scores of its runs."""

from dataclasses import dataclass

import numpy as np

from toosure.recipes.benchmark.score_files import Record

OURS = "gamma-net + SECE"
ALONE = "SECE alone"
LEVEL_FIRST = "gamma-net, level first"


@dataclass(frozen=True)
class Row:
    """A method on one data set, with the records of its finished runs."""

    name: str
    word: str
    expected: int
    records: tuple[Record, ...] = ()

    def values(self, key: str) -> list[float]:
        """Return a score of the test images, per seed."""
        return [record.test[key] for record in self.records]

    def mean(self, key: str) -> float:
        return float(np.mean(self.values(key)))

    def validation_mean(self, key: str) -> float:
        """Return the mean over seeds of a score of the validation images; NaN if one lacks it."""
        return float(np.mean([record.val.get(key, np.nan) for record in self.records]))

    @property
    def overconfidence(self) -> list[float]:
        """Confidence minus accuracy on the test images, in points, per seed."""
        return [100 * (r.test["confidence"] - r.test["accuracy"]) for r in self.records]


Rows = dict[str, Row]  # by the method's name
