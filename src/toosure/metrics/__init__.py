"""How sure against how right: calibration errors, proper scores and ranking, as pure functions.

Each takes `(logits, labels)`; probabilities enter as their logarithm. Streaming twins live in
`toosure.metrics.streaming`, which loads torchmetrics and is therefore imported by name.
"""

from toosure.metrics.binned import (
    Reliability,
    adaptive_ece,
    adaptive_ece_from_confidence,
    ece,
    ece_from_confidence,
    mce,
    mce_from_confidence,
    reliability,
    reliability_from_confidence,
    rmsce,
    rmsce_from_confidence,
)
from toosure.metrics.classwise import classwise_ece, classwise_ece_from_probabilities
from toosure.metrics.confidence import top_label
from toosure.metrics.debiased import debiased_ece, debiased_ece_from_confidence
from toosure.metrics.differentiable import (
    dece,
    dece_from_confidence,
    sece,
    sece_from_confidence,
    soft_correct,
)
from toosure.metrics.intervals import (
    Interval,
    confidence_interval,
    confidence_interval_from_confidence,
)
from toosure.metrics.kernel import mmce, mmce_from_confidence
from toosure.metrics.ranking import (
    accuracy_coverage,
    accuracy_coverage_from_confidence,
    aurc,
    aurc_from_confidence,
    auroc_misclass,
    auroc_misclass_from_confidence,
    auroc_ood,
    auroc_ovr,
    auroc_ovr_binned,
    auroc_ovr_binned_from_probabilities,
    auroc_ovr_from_probabilities,
    fpr95_ood,
)
from toosure.metrics.scores import (
    Split,
    accuracy,
    binary_entropy,
    brier,
    brier_split,
    entropy,
    nll,
    nll_split,
)
from toosure.metrics.simplex import (
    kde_ece,
    kde_ece_from_confidence,
    median_distance,
    skce,
    skce_from_probabilities,
)
from toosure.metrics.smooth import smece, smece_from_confidence

__all__ = [
    "Interval",
    "Reliability",
    "Split",
    "accuracy",
    "accuracy_coverage",
    "accuracy_coverage_from_confidence",
    "adaptive_ece",
    "adaptive_ece_from_confidence",
    "aurc",
    "aurc_from_confidence",
    "auroc_misclass",
    "auroc_misclass_from_confidence",
    "auroc_ood",
    "auroc_ovr",
    "auroc_ovr_binned",
    "auroc_ovr_binned_from_probabilities",
    "auroc_ovr_from_probabilities",
    "binary_entropy",
    "brier",
    "brier_split",
    "classwise_ece",
    "classwise_ece_from_probabilities",
    "confidence_interval",
    "confidence_interval_from_confidence",
    "debiased_ece",
    "debiased_ece_from_confidence",
    "dece",
    "dece_from_confidence",
    "ece",
    "ece_from_confidence",
    "entropy",
    "fpr95_ood",
    "kde_ece",
    "kde_ece_from_confidence",
    "mce",
    "mce_from_confidence",
    "median_distance",
    "mmce",
    "mmce_from_confidence",
    "nll",
    "nll_split",
    "reliability",
    "reliability_from_confidence",
    "rmsce",
    "rmsce_from_confidence",
    "sece",
    "sece_from_confidence",
    "skce",
    "skce_from_probabilities",
    "smece",
    "smece_from_confidence",
    "soft_correct",
    "top_label",
]
