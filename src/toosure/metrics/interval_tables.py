"""How the interval of each metric is found, and between which numbers the metric lies.

What is in none of these tables is called on resampled rows, and may be any number.
"""

import math
from collections.abc import Callable
from typing import Any

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
from toosure.metrics.bootstrap_cells import Interval, aurc_of_ranks, auroc_of_ranks

Metric = Callable[..., Tensor]

# Of logits -> of confidences, which is resampled in its place.
FROM_CONFIDENCE: dict[Metric, Metric] = {
    binned.ece: binned.ece_from_confidence,
    binned.mce: binned.mce_from_confidence,
    binned.rmsce: binned.rmsce_from_confidence,
    binned.adaptive_ece: binned.adaptive_ece_from_confidence,
    debiased.debiased_ece: debiased.debiased_ece_from_confidence,
    kernel.mmce: kernel.mmce_from_confidence,
    smooth.smece: smooth.smece_from_confidence,
}
RANKED_FROM_CONFIDENCE: dict[Metric, Metric] = {  # where probabilities came
    ranking.auroc_misclass: ranking.auroc_misclass_from_confidence,
    ranking.aurc: ranking.aurc_from_confidence,
}

# Functions of sums over bins, of ranks, and means over rows: all replicas at once.
BINNED: dict[Metric, BinnedError] = {
    binned.ece_from_confidence: BinnedError(norm=1),
    binned.mce_from_confidence: BinnedError(norm=math.inf),
    binned.rmsce_from_confidence: BinnedError(norm=2),
    binned.adaptive_ece_from_confidence: BinnedError(norm=1, adaptive=True),
    debiased.debiased_ece_from_confidence: BinnedError(1, of_sums=debiased.debiased_error_of),
}
RANKED: dict[Metric, Callable[[Tensor], Tensor]] = {
    ranking.auroc_misclass: auroc_of_ranks,
    ranking.auroc_misclass_from_confidence: auroc_of_ranks,
    ranking.aurc: aurc_of_ranks,
    ranking.aurc_from_confidence: aurc_of_ranks,
}
OF_SCORES: dict[Metric, Metric] = {  # the ranking itself, of odds and hits
    ranking.auroc_misclass: ranking.auroc_misclass_of_scores,
    ranking.aurc: ranking.aurc_of_scores,
}
ROW_SCORES: dict[Metric, scores.RowScore] = {
    scores.nll: scores.nll_rows,
    scores.brier: scores.brier_rows,
    scores.accuracy: scores.accuracy_rows,
    scores.binary_entropy: scores.binary_entropy_rows,
    scores.entropy: scores.entropy_rows,
}

AREAS: tuple[Metric, ...] = (
    ranking.auroc_ovr,
    ranking.auroc_ovr_from_probabilities,
    ranking.auroc_ovr_binned,
    ranking.auroc_ovr_binned_from_probabilities,
)
CLASSWISE: tuple[Metric, ...] = (
    classwise.classwise_ece,
    classwise.classwise_ece_from_probabilities,
)
# Absolute gaps, pushed up by noise, whose bias nothing here bounds: "auto" gives no ends.
WITHOUT_BOUND: tuple[Metric, ...] = (
    differentiable.dece,
    differentiable.dece_from_confidence,
    differentiable.sece,
    differentiable.sece_from_confidence,
    simplex.kde_ece,
    simplex.kde_ece_from_confidence,
)
OF_TWO_SETS: tuple[Metric, ...] = (ood.auroc_ood, ood.fpr95_ood)

SHARES: tuple[Metric, ...] = (
    *(scores.accuracy, smooth.smece_from_confidence),
    *(*BINNED, *RANKED, *AREAS),
)
NOT_NEGATIVE: tuple[Metric, ...] = (
    *(scores.nll, scores.entropy, scores.binary_entropy, kernel.mmce_from_confidence),
    *(*WITHOUT_BOUND, *CLASSWISE),
)


def is_plain_mmce(metric: Metric, options: dict[str, Any]) -> bool:
    """Whether a metric is the MMCE of Kumar et al., unweighted, and no variant of it."""
    plain = options.get("normalization", "paper") == "paper" and not options.get("weighted")
    return metric is kernel.mmce_from_confidence and plain


def range_of(metric: Metric) -> tuple[float, float]:
    """Return the least and the largest number that a metric can be.

    >>> range_of(scores.brier), range_of(scores.nll)
    ((0.0, 2.0), (0.0, inf))
    """
    if metric in SHARES:
        return 0.0, 1.0
    if metric is scores.brier:
        return 0.0, 2.0
    return (0.0 if metric in NOT_NEGATIVE else -math.inf), math.inf


def within_range(metric: Metric, interval: Interval) -> Interval:
    """Cut the ends of an interval to the numbers that the metric can be."""
    least, largest = range_of(metric)
    value, low, high = interval
    return Interval(value, low.clamp(least, largest), high.clamp(least, largest))
