"""Paired differences between two methods: same test images, same seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from toosure.metrics.resampler import Resampler
from toosure.recipes.benchmark.record import Examples, Record

RESAMPLES = 2000
BINS = 15
# A function of the examples of a run and the numbers of some test images.
Score = Callable[[Examples, np.ndarray], np.ndarray | float]


@dataclass(frozen=True)
class Difference:
    """Second minus first: mean over seeds, 95 % interval over test images, value per seed."""

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
    """Differences of accuracy and ECE, in points, and of NLL."""

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


class ResampledScores:
    """Scores of runs over the same resamples of the test images, each computed once.

    `examples` holds the examples of each run by its name.
    """

    def __init__(self, examples: dict[str, Examples], resamples: int = RESAMPLES) -> None:
        self.examples = examples
        self.resamples = resamples
        self._scores: dict[tuple[str, Score, int], np.ndarray] = {}

    def resampled_scores(self, name: str, score: Score, seed: int = 0) -> np.ndarray:
        """Return a run's score on all test images, then on each resample, (1 + resamples, ...).

        Equal seeds draw the same images in every run, so that differences between runs are paired.
        """
        key = (name, score, seed)
        if key not in self._scores:
            examples = self.examples[name]
            n = len(examples["correct"])
            draws = [np.arange(n), *Resampler(seed, self.resamples).rows(n)]
            self._scores[key] = np.array([score(examples, rows) for rows in draws])
        return self._scores[key]


def interval_quantiles(
    scores: np.ndarray, tails: Sequence[float], *, centred: bool = False
) -> np.ndarray:
    """Return quantiles of a difference over resamples, (tails, ...); `scores[0]` uses all images.

    Resampling adds noise to bins, which raises the errors of resamples. If it raises them by
    different amounts for two methods, plain quantiles need not lie around the difference. Centred
    quantiles do: the resamples are moved until their mean is the difference. In simulations,
    centred quantiles hold their level for differences *as measured* on this many images, and plain
    ones mostly hold more; neither holds it for true differences
    (benchmarks/results/paired_coverage.md).

    >>> scores = np.array([1.0, 2.0, 3.0, 4.0])
    >>> interval_quantiles(scores, [0.5]).tolist()
    [3.0]
    >>> interval_quantiles(scores, [0.5], centred=True).tolist()
    [1.0]
    """
    resamples = scores[1:]
    if centred:
        resamples = resamples - resamples.mean(0) + scores[0]
    quantiles: np.ndarray = np.quantile(resamples, tails, axis=0)
    return quantiles


class PairedScores(ResampledScores):
    """Differences of accuracy, NLL and ECE between methods, with two-sided intervals."""

    def differences(self, first: Sequence[Record], second: Sequence[Record]) -> Differences | None:
        """Return second minus first over the seeds that both have, or None if no pair has examples.

        The intervals resample test images, the same for all seeds. They are not centred, so the
        interval of an ECE difference need not lie around the difference.
        """
        by_seed = [
            self.resampled_scores(b.name, accuracy_nll_ece)
            - self.resampled_scores(a.name, accuracy_nll_ece)
            for a, b in paired_by_seed(first, second)
            if a.name in self.examples and b.name in self.examples
        ]
        if not by_seed:
            return None

        mean = np.mean(by_seed, axis=0)
        low, high = interval_quantiles(mean, [0.025, 0.975])
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


def accuracy_nll_ece(examples: Examples, rows: np.ndarray) -> np.ndarray:
    """Return accuracy in points, NLL, and ECE in points on some test images of a run, (3,)."""
    correct = examples["correct"][rows]
    error = binned_error(examples["confidence"][rows].astype(float), correct)
    nll = -examples["log_probability"][rows].mean()
    return np.array([100 * correct.mean(), nll, 100 * error])


def binned_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the ECE of equal-width, right-closed bins.

    >>> float(binned_error(np.array([0.9, 0.9]), np.array([True, False])))
    0.4
    """
    index = np.searchsorted(np.arange(1, BINS) / BINS, confidence)
    gaps = np.bincount(index, confidence - correct, minlength=BINS)
    return float(np.abs(gaps).sum() / len(correct))
