"""One-sided bounds of the difference of two methods, over resamples of the same test images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from toosure import metrics
from toosure.recipes.benchmark.paired import ResampledScores, paired_by_seed
from toosure.recipes.benchmark.record import CONFIDENCE_STEPS, Examples, Record
from toosure.recipes.benchmark.scored_rows import scores_on_test

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


@dataclass(frozen=True)
class TopLabelScore:
    """A metric of confidence and hits in points, of a run as it is or after temperature scaling.

    >>> examples = {"confidence": np.array([0.9, 0.8]), "correct": np.array([True, False])}
    >>> TopLabelScore("accuracy")(examples, np.array([0, 1]))
    50.0
    """

    metric: str
    after: bool = False

    def __call__(self, examples: Examples, rows: np.ndarray) -> float:
        """Return the metric of the test images with these numbers."""
        correct = torch.from_numpy(examples["correct"][rows])
        if self.metric == "accuracy":
            return 100 * float(correct.double().mean())

        if self.after:
            confidence = examples["confidence_after"][rows].astype(float) / CONFIDENCE_STEPS
        else:
            confidence = examples["confidence"][rows].astype(float)
        metric = getattr(metrics, f"{self.metric}_from_confidence")
        return 100 * float(metric(torch.from_numpy(confidence), correct))


class BoundedScores(ResampledScores):
    """Differences of one metric between methods, with one-sided bounds: they judge a margin."""

    def __init__(self, examples: dict[str, Examples], resamples: int = RESAMPLES) -> None:
        super().__init__(examples, resamples)

    def has(self, record: Record, score: TopLabelScore) -> bool:
        """Whether what a score needs of each test image was kept of a run."""
        needed = "confidence_after" if score.after else "confidence"
        return needed in self.examples.get(record.name, {})

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
        own = TopLabelScore(metric)
        rival = TopLabelScore(metric, after)
        pairs = [pair for pair in paired_by_seed(first, second) if self.has(pair[1], own)]
        if not pairs:
            return None

        by_seed = [
            self.over_resamples(b.name, own) - self.rival_scores(a, b, rival) for a, b in pairs
        ]
        mean = np.mean(by_seed, axis=0)
        noise = mean[1:] - mean[1:].mean()
        low, high = np.quantile(noise, [1 - LEVEL, LEVEL])
        return BoundedDifference(
            value=float(mean[0]),
            low=float(mean[0] + low),
            high=float(mean[0] + high),
            by_seed=tuple(float(each[0]) for each in by_seed),
            paired=all(self.has(a, rival) for a, _ in pairs),
        )

    def rival_scores(self, rival: Record, ours: Record, score: TopLabelScore) -> np.ndarray:
        """Return the scores of a rival; where its images were not kept, its score with noise.

        The noise is then that of our run over other resamples, as if the two were judged on
        different images. It does not cancel, so that the bounds are wider than paired ones.
        """
        if self.has(rival, score):
            return self.over_resamples(rival.name, score)
        value = 100 * scores_on_test(rival, score.after)[score.metric]
        other = self.over_resamples(ours.name, TopLabelScore(score.metric), seed=1)
        noisy: np.ndarray = value + other - other[0]
        return noisy
