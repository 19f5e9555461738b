"""Paired differences of two methods: the same test images, the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toosure.recipes.benchmark.score_files import Examples, Record

RESAMPLES = 2000
BINS = 15


@dataclass(frozen=True)
class Difference:
    """Second minus first: mean over seeds, 95 % interval over test images, and each seed's own."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]

    def text(self, form: str = "+.2f") -> str:
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"

    @property
    def below_zero(self) -> bool:
        """Whether the interval lies below 0, and the difference of each seed does."""
        return self.high < 0 and max(self.by_seed) < 0


@dataclass(frozen=True)
class Differences:
    """Of accuracy and ECE in points, and of NLL."""

    accuracy: Difference
    nll: Difference
    ece: Difference

    @property
    def seeds(self) -> int:
        return len(self.ece.by_seed)


def paired_by_seed(
    first: Sequence[Record], second: Sequence[Record]
) -> list[tuple[Record, Record]]:
    """Return the pairs of records that have the same seed."""
    by_seed = {record.config.seed: record for record in first}
    return [(by_seed[b.config.seed], b) for b in second if b.config.seed in by_seed]


class PairedScores:
    """Numbers of runs over the same resamples of the test images, each run computed once.

    `examples` are those of the runs by name.
    """

    def __init__(self, examples: dict[str, Examples], resamples: int = RESAMPLES) -> None:
        self.examples = examples
        self.resamples = resamples
        self._numbers: dict[str, np.ndarray] = {}

    def numbers(self, name: str) -> np.ndarray:
        """Return accuracy, NLL and ECE (see `numbers_of`): of all images, then of each resample."""
        if name not in self._numbers:
            examples = self.examples[name]
            n = len(examples["correct"])
            generator = np.random.default_rng(0)  # the same draws for every run
            draws = [generator.integers(0, n, n) for _ in range(self.resamples)]
            rows = [np.arange(n), *draws]
            self._numbers[name] = np.array([numbers_of(examples, each) for each in rows])
        return self._numbers[name]  # (1 + resamples, 3)

    def differences(self, first: Sequence[Record], second: Sequence[Record]) -> Differences | None:
        """Return second minus first over the seeds of both; None where no pair has its examples.

        The intervals resample test images, the same for all seeds. That of an ECE's difference need
        not lie around the difference: resampling adds noise to bins, and so to small errors.
        """
        by_seed = [
            self.numbers(b.name) - self.numbers(a.name)
            for a, b in paired_by_seed(first, second)
            if a.name in self.examples and b.name in self.examples
        ]
        if not by_seed:
            return None

        mean = np.mean(by_seed, axis=0)
        low, high = np.quantile(mean[1:], [0.025, 0.975], axis=0)
        accuracy, nll, ece = (
            Difference(
                float(mean[0, i]),
                float(low[i]),
                float(high[i]),
                tuple(float(each[0, i]) for each in by_seed),
            )
            for i in range(3)
        )
        return Differences(accuracy, nll, ece)


def numbers_of(examples: Examples, rows: np.ndarray) -> np.ndarray:
    """Return accuracy in points, NLL and ECE in points of some test images of a run."""
    correct = examples["correct"][rows]
    error = binned_error(examples["confidence"][rows].astype(float), correct)
    nll = -examples["log_probability"][rows].mean()
    return np.array([100 * correct.mean(), nll, 100 * error])


def binned_error(confidence: np.ndarray, correct: np.ndarray, bins: int = BINS) -> float:
    """Return the ECE of equal-width, right-closed bins.

    >>> float(binned_error(np.array([0.9, 0.9]), np.array([True, False])))
    0.4
    """
    index = np.searchsorted(np.arange(1, bins) / bins, confidence)
    gaps = np.bincount(index, confidence - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(correct))
