"""One-sided bounds of the difference of two methods, over resamples of the same test images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from toosure import metrics
from toosure.recipes.benchmark.paired import paired_by_seed
from toosure.recipes.benchmark.score_files import CONFIDENCE_STEPS, Examples, Record

RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class BoundedDifference:
    """Second minus first in points: mean over seeds, one-sided bounds, and each seed's own."""

    value: float
    low: float  # above it with 95 %
    high: float  # below it with 95 %
    by_seed: tuple[float, ...]
    paired: bool = True  # whether the same test images were compared one by one

    def text(self) -> str:
        seeds = ", ".join(f"{each:+.2f}" for each in self.by_seed)
        unpaired = "" if self.paired else "; unpaired, which is wider: not all images were kept"
        return (
            f"{self.value:+.2f}, one-sided 95 % from {self.low:+.2f} and to {self.high:+.2f}; "
            f"by seed {seeds}{unpaired}"
        )


class ResampledScores:
    """Scores of runs over the same resamples of the test images, each computed once."""

    def __init__(self, examples: dict[str, Examples], resamples: int = RESAMPLES) -> None:
        self.examples = examples
        self.resamples = resamples
        self._numbers: dict[tuple[str, str, bool, int], np.ndarray] = {}

    def has(self, record: Record, after: bool) -> bool:
        """Whether what is needed of each test image was kept of a run."""
        needed = "confidence_after" if after else "confidence"
        return needed in self.examples.get(record.name, {})

    def numbers(self, name: str, metric: str, after: bool = False, draw: int = 0) -> np.ndarray:
        """Return a metric in points: of all test images, then of each resample of a draw."""
        key = (name, metric, after, draw)
        if key not in self._numbers:
            examples = self.examples[name]
            confidence = torch.from_numpy(confidence_of(examples, after))
            correct = torch.from_numpy(examples["correct"])
            n = len(correct)
            generator = np.random.default_rng(draw)  # the same resamples for every run
            rows = [np.arange(n), *(generator.integers(0, n, n) for _ in range(self.resamples))]
            values = [score(metric, confidence[each], correct[each]) for each in rows]
            self._numbers[key] = 100 * np.array(values)
        return self._numbers[key]  # (1 + resamples,)

    def difference(
        self,
        metric: str,
        first: Sequence[Record],
        second: Sequence[Record],
        after: bool = False,
    ) -> BoundedDifference | None:
        """Return second minus first over the seeds of both; None where no pair has its examples.

        `after` takes the first, not the second, after temperature scaling. The resamples are
        centred on their mean before the bounds are taken: resampling adds noise to bins, so that
        errors of resamples lie above that of all images.
        """
        pairs = [pair for pair in paired_by_seed(first, second) if self.has(pair[1], False)]
        if not pairs:
            return None

        by_seed = [
            self.numbers(b.name, metric) - self.rival_numbers(a, b, metric, after) for a, b in pairs
        ]
        mean = np.mean(by_seed, axis=0)
        noise = mean[1:] - mean[1:].mean()
        low, high = np.quantile(noise, [1 - LEVEL, LEVEL])
        return BoundedDifference(
            value=float(mean[0]),
            low=float(mean[0] + low),
            high=float(mean[0] + high),
            by_seed=tuple(float(each[0]) for each in by_seed),
            paired=all(self.has(a, after) for a, _ in pairs),
        )

    def rival_numbers(self, rival: Record, ours: Record, metric: str, after: bool) -> np.ndarray:
        """Return the numbers of a rival; where its images were not kept, its score with noise.

        The noise is then that of our run over other resamples, as if the two were judged on
        different images. It does not cancel, so that the bounds are wider than paired ones.
        """
        if self.has(rival, after):
            return self.numbers(rival.name, metric, after)
        score = 100 * (rival.test_after_temperature if after else rival.test)[metric]
        other = self.numbers(ours.name, metric, draw=1)
        numbers: np.ndarray = score + other - other[0]
        return numbers


def confidence_of(examples: Examples, after: bool) -> np.ndarray:
    """Return the confidence of each test image, as it is or after the temperature."""
    if after:
        return examples["confidence_after"].astype(float) / CONFIDENCE_STEPS
    return examples["confidence"].astype(float)


def score(metric: str, confidence: torch.Tensor, correct: torch.Tensor) -> float:
    """Return a metric of the top label.

    >>> score("accuracy", torch.tensor([0.9, 0.8]), torch.tensor([True, False]))
    0.5
    """
    if metric == "accuracy":
        return float(correct.double().mean())
    return float(getattr(metrics, f"{metric}_from_confidence")(confidence, correct))
