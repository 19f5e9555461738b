"""One-sided bounds of the difference of two methods, over resamples of the same test images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from toosure import metrics
from toosure.recipes.benchmark.paired import ResampledScores, interval_quantiles, paired_by_seed
from toosure.recipes.benchmark.record import CONFIDENCE_STEPS, Examples, Record
from toosure.recipes.benchmark.scored_rows import scores_on_test

RESAMPLES = 1000
CHANCE_DRAWS = 200  # with 20, one mean was off by a quarter
LEVEL = 0.95


@dataclass(frozen=True)
class BoundedDifference:
    """Second minus first in points: mean over seeds, one-sided bounds, value per seed."""

    value: float
    low: float  # above it with 95 %
    high: float  # below it with 95 %
    by_seed: tuple[float, ...]
    paired: bool = True  # whether the same test images were compared one by one
    by_chance: float | None = None  # the error that ours would show if it were calibrated

    def text(self) -> str:
        seeds = ", ".join(f"{each:+.2f}" for each in self.by_seed)
        unpaired = "" if self.paired else "; unpaired, which is wider: not all images were kept"
        chance = "" if self.by_chance is None else f"; chance alone shows {self.by_chance:.2f}"
        return (
            f"{self.value:+.2f}, one-sided 95 % from {self.low:+.3f} and to {self.high:+.3f}; "
            f"by seed {seeds}{chance}{unpaired}"
        )


@dataclass(frozen=True)
class TopLabelScore:
    """A metric of confidence and hits in points, before or after temperature scaling.

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
    """Differences of one metric between methods, with one-sided bounds to judge a margin."""

    def __init__(self, examples: dict[str, Examples], resamples: int = RESAMPLES) -> None:
        super().__init__(examples, resamples)

    def has(self, record: Record, score: TopLabelScore) -> bool:
        """Whether the examples of a run hold what a score needs."""
        needed = "confidence_after" if score.after else "confidence"
        return needed in self.examples.get(record.name, {})

    def difference(
        self,
        metric: str,
        first: Sequence[Record],
        second: Sequence[Record],
        after: bool = False,
    ) -> BoundedDifference | None:
        """Return second minus first over the seeds that both have, or None if no pair has examples.

        With `after`, the first (not the second) is taken after temperature scaling. The bounds hold
        for errors as measured on this many images, including what chance adds to each
        (`by_chance`). Chance adds most to a network without error. If ours has an error, it
        therefore looks smaller than it is.
        """
        own = TopLabelScore(metric)
        rival = TopLabelScore(metric, after)
        pairs = [pair for pair in paired_by_seed(first, second) if self.has(pair[1], own)]
        if not pairs:
            return None

        by_seed = [
            self.resampled_scores(b.name, own) - self.rival_scores(a, b, rival) for a, b in pairs
        ]
        mean = np.mean(by_seed, axis=0)
        low, high = interval_quantiles(mean, [1 - LEVEL, LEVEL], centred=True)
        return BoundedDifference(
            value=float(mean[0]),
            low=float(low),
            high=float(high),
            by_seed=tuple(float(each[0]) for each in by_seed),
            paired=all(self.has(a, rival) for a, _ in pairs),
            by_chance=None if metric == "accuracy" else self.by_chance([b for _, b in pairs], own),
        )

    def by_chance(self, records: Sequence[Record], score: TopLabelScore) -> float:
        """Return the error that runs with these confidences would show if they were calibrated.

        The hits are drawn from the confidences (Bröcker & Smith 2007).
        """
        rng = np.random.default_rng(0)
        errors = []
        for record in records:
            confidence = self.examples[record.name]["confidence"].astype(float)
            every_row = np.arange(len(confidence))
            for _ in range(CHANCE_DRAWS):
                hits = rng.random(len(confidence)) < confidence
                errors.append(score({"confidence": confidence, "correct": hits}, every_row))
        return float(np.mean(errors))

    def rival_scores(self, rival: Record, ours: Record, score: TopLabelScore) -> np.ndarray:
        """Return the scores of a rival; if its images were not saved, its score with noise.

        The noise is the scatter of our run over other resamples, as if the two were judged on
        different images. It does not cancel, so the bounds are wider than paired ones. This assumes
        that the error of the rival is not larger than ours: a larger error varies more.
        """
        if self.has(rival, score):
            return self.resampled_scores(rival.name, score)
        value = 100 * scores_on_test(rival, score.after)[score.metric]
        other = self.resampled_scores(ours.name, TopLabelScore(score.metric), seed=1)
        noisy: np.ndarray = value + other - other[0]
        return noisy
