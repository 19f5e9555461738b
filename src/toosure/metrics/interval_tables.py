"""How the interval of each metric is found, and between which numbers the metric lies."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from torch import Tensor

from toosure.metrics import (
    binned,
    classwise,
    debiased,
    differentiable,
    kernel,
    ood,
    ranking,
    scores,
    simplex,
    smooth,
)
from toosure.metrics.binned_interval import BinnedError
from toosure.metrics.interval_ends import Interval
from toosure.metrics.rank_interval import aurc_of_ranks, auroc_of_ranks

Metric = Callable[..., Tensor]
Kind = Literal[
    "binned",  # functions of sums over bins of confidence: all replicas at once
    "smece",
    "mmce",
    "classwise",
    "mean",  # means over rows
    "ranks",  # functions of counts by rank
    "area",  # called on resampled rows; the "basic" interval would go beyond 1
    "no bound",  # biased upwards by noise, without a known bound: "auto" gives no ends
    "two sets",  # compare two sets of logits and have no interval
    "called",  # called on resampled rows
]
SHARE = (0.0, 1.0)
NOT_NEGATIVE = (0.0, math.inf)


class Ranking(NamedTuple):
    """A ranking metric of scores and hits, and of wrong and right rows per level of the score."""

    of_scores: Callable[[Tensor, Tensor], Tensor]
    of_counts: Callable[[Tensor], Tensor]


class MetricInterval(NamedTuple):
    """How the interval of one metric is found."""

    kind: Kind = "called"
    range: tuple[float, float] = (-math.inf, math.inf)  # the metric lies between these numbers
    from_confidence: Metric | None = None  # the same metric of (confidence, correct)
    error: BinnedError | None = None  # of kind "binned"
    row_score: scores.RowScore | None = None  # of kind "mean"
    ranking: Ranking | None = None  # of kind "ranks"

    @property
    def needs_confidence_only(self) -> bool:
        """Whether the metric is a function of confidences, which are then resampled."""
        return self.kind in ("binned", "smece", "mmce")

    def within_range(self, interval: Interval) -> Interval:
        """Cut the ends of an interval to the numbers that the metric can be."""
        value, low, high = interval
        return Interval(value, low.clamp(*self.range), high.clamp(*self.range))


AUROC = Ranking(ranking.auroc_misclass_of_scores, auroc_of_ranks)
AURC = Ranking(ranking.aurc_of_scores, aurc_of_ranks)
DEBIASED = BinnedError(1, of_sums=debiased.debiased_error_of)

# A metric that is not here is of kind "called", and may be any number.
INTERVALS: dict[Metric, MetricInterval] = {
    binned.ece: MetricInterval(
        "binned", SHARE, binned.ece_from_confidence, error=BinnedError(norm=1)
    ),
    binned.mce: MetricInterval(
        "binned", SHARE, binned.mce_from_confidence, error=BinnedError(norm=math.inf)
    ),
    binned.rmsce: MetricInterval(
        "binned", SHARE, binned.rmsce_from_confidence, error=BinnedError(norm=2)
    ),
    binned.adaptive_ece: MetricInterval(
        "binned",
        SHARE,
        binned.adaptive_ece_from_confidence,
        error=BinnedError(norm=1, adaptive=True),
    ),
    debiased.debiased_ece: MetricInterval(
        "binned", SHARE, debiased.debiased_ece_from_confidence, error=DEBIASED
    ),
    smooth.smece: MetricInterval("smece", SHARE, smooth.smece_from_confidence),
    kernel.mmce: MetricInterval("mmce", NOT_NEGATIVE, kernel.mmce_from_confidence),
    classwise.classwise_ece: MetricInterval("classwise", NOT_NEGATIVE),
    scores.nll: MetricInterval("mean", NOT_NEGATIVE, row_score=scores.nll_rows),
    scores.brier: MetricInterval("mean", (0.0, 2.0), row_score=scores.brier_rows),
    scores.accuracy: MetricInterval("mean", SHARE, row_score=scores.accuracy_rows),
    scores.entropy: MetricInterval("mean", NOT_NEGATIVE, row_score=scores.entropy_rows),
    scores.binary_entropy: MetricInterval(
        "mean", NOT_NEGATIVE, row_score=scores.binary_entropy_rows
    ),
    ranking.auroc_misclass: MetricInterval(
        "ranks", SHARE, ranking.auroc_misclass_from_confidence, ranking=AUROC
    ),
    ranking.aurc: MetricInterval("ranks", SHARE, ranking.aurc_from_confidence, ranking=AURC),
    ranking.auroc_ovr: MetricInterval("area", SHARE),
    ranking.auroc_ovr_binned: MetricInterval("area", SHARE),
    differentiable.dece: MetricInterval(
        "no bound", NOT_NEGATIVE, differentiable.dece_from_confidence
    ),
    differentiable.sece: MetricInterval(
        "no bound", NOT_NEGATIVE, differentiable.sece_from_confidence
    ),
    simplex.kde_ece: MetricInterval("no bound", NOT_NEGATIVE, simplex.kde_ece_from_confidence),
    ood.auroc_ood: MetricInterval("two sets"),
    ood.fpr95_ood: MetricInterval("two sets"),
}
FROM_CONFIDENCE: dict[Metric, MetricInterval] = {
    entry.from_confidence: entry
    for entry in INTERVALS.values()
    if entry.from_confidence is not None
}


def is_plain_mmce(options: dict[str, Any]) -> bool:
    """Whether options leave the MMCE unweighted, as Kumar et al. define it."""
    return options.get("normalization", "paper") == "paper" and not options.get("weighted")
