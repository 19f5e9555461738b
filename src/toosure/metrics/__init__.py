"""Calibration errors, proper scores and ranking metrics, as pure functions of `(logits, labels)`.

Probabilities go in as `probs=`; as logits they are refused. A binary classifier may give one number
per example, (N,) or (N, 1), with labels 0 and 1 or booleans. Where to find what:

    binned           ECE, MCE, RMSCE, adaptive ECE, reliability table: `bin_sums`, then `error_of`
    classwise        classwise ECE
    predicted_classes  the gap of each predicted class, and how far they differ beyond chance
    debiased         debiased ECE
    smooth           smECE
    differentiable   SECE, DECE
    kernel           MMCE
    simplex          SKCE, KDE-ECE
    scores           NLL, Brier, accuracy, entropy; calibration and refinement
    ranking, ood     AUROC, AURC, coverage; out-of-distribution detection
    intervals        bootstrap intervals of all of these, over rows or whole groups (sequences,
                     images, people); `interval_tables` says how that of each metric is found
    resampler        which rows, groups or cells a bootstrap replica draws, also of two models
    multilabel       independent labels (N, K): each, pooled, and the worst (`label_faults`)
    positions        tokens and pixels as rows with their sequence or image
    streaming        the same over batches, with torchmetrics' interface; imported by name only,
                     because it loads torchmetrics
    confidence       confidence and correctness of the top label, in one pass over the logits
    inputs           checks of what is passed in, logits or probabilities
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
from toosure.metrics.classwise import classwise_ece
from toosure.metrics.confidence import class_one, top_label
from toosure.metrics.debiased import debiased_ece, debiased_ece_from_confidence
from toosure.metrics.differentiable import (
    dece,
    dece_from_confidence,
    sece,
    sece_from_confidence,
    soft_correct,
)
from toosure.metrics.interval_ends import Interval
from toosure.metrics.intervals import confidence_interval, confidence_interval_from_confidence
from toosure.metrics.kernel import mmce, mmce_from_confidence
from toosure.metrics.multilabel import (
    LabelCalibration,
    MultilabelCalibration,
    multilabel_calibration,
)
from toosure.metrics.ood import auroc_ood, fpr95_ood
from toosure.metrics.positions import FlatPositions, flatten_positions
from toosure.metrics.predicted_classes import class_gap, class_gaps
from toosure.metrics.ranking import (
    accuracy_coverage,
    accuracy_coverage_from_confidence,
    aurc,
    aurc_from_confidence,
    auroc_misclass,
    auroc_misclass_from_confidence,
    auroc_ovr,
    auroc_ovr_binned,
)
from toosure.metrics.scores import (
    Split,
    accuracy,
    binary_brier,
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
)
from toosure.metrics.smooth import smece, smece_from_confidence

__all__ = [
    "FlatPositions",
    "Interval",
    "LabelCalibration",
    "MultilabelCalibration",
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
    "binary_brier",
    "binary_entropy",
    "brier",
    "brier_split",
    "class_gap",
    "class_gaps",
    "class_one",
    "classwise_ece",
    "confidence_interval",
    "confidence_interval_from_confidence",
    "debiased_ece",
    "debiased_ece_from_confidence",
    "dece",
    "dece_from_confidence",
    "ece",
    "ece_from_confidence",
    "entropy",
    "flatten_positions",
    "fpr95_ood",
    "kde_ece",
    "kde_ece_from_confidence",
    "mce",
    "mce_from_confidence",
    "median_distance",
    "mmce",
    "mmce_from_confidence",
    "multilabel_calibration",
    "nll",
    "nll_split",
    "reliability",
    "reliability_from_confidence",
    "rmsce",
    "rmsce_from_confidence",
    "sece",
    "sece_from_confidence",
    "skce",
    "smece",
    "smece_from_confidence",
    "soft_correct",
    "top_label",
]
