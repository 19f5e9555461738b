"""Evaluate predictions: every metric with its interval, the gap, and a row a class."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure import metrics
from toosure.evaluate.estimates import Estimate, calibrated_ece, confidence_gap, hit_rate
from toosure.metrics.binned import Reliability, reliability_from_confidence
from toosure.metrics.confidence import row_chunks
from toosure.predictions import Predictions

GROUPS = {
    "Binned errors": ("ece", "mce", "rmsce", "adaptive_ece", "debiased_ece", "classwise_ece"),
    "Errors without bins": ("smece", "sece", "dece", "mmce", "skce", "kde_ece"),
    "Scores": (
        *("accuracy", "nll", "nll_calibration", "nll_refinement"),
        *("brier", "brier_calibration", "brier_refinement", "entropy", "binary_entropy"),
    ),
    "Ranking": ("aurc", "auroc_misclass", "auroc_ovr", "auroc_ovr_binned"),
}
BINNED = ("ece", "mce", "rmsce", "debiased_ece", "classwise_ece")  # take bins and edge
PAIRWISE = ("sece", "skce", "kde_ece")  # look at all pairs of samples
MOST_PAIRS = 2e9  # n^2 times the numbers compared: some seconds
QUICK = (  # are resampled at a cost that does not grow with n
    *("ece", "mce", "rmsce", "adaptive_ece", "debiased_ece", "aurc", "auroc_misclass"),
    *("nll", "brier", "entropy", "binary_entropy"),
)
CALLED = ("classwise_ece", "dece", "mmce", "auroc_ovr", "auroc_ovr_binned")  # 200 times, if small
SPLITS = {"nll": metrics.nll_split, "brier": metrics.brier_split}
PARTS = ("_calibration", "_refinement")
MOST_SPLIT = 4e6  # numbers in the predictions: a split takes the score at some 45 temperatures
MOST_BINS = 1000  # resampling holds a number for each bin and replica
MOST_CALLED = 20_000  # numbers in the predictions
LOWER: dict[str, Callable[..., Tensor]] = {  # of dece, soft accuracy needs every class
    name: getattr(metrics, f"{name}_from_confidence")
    for names in GROUPS.values()
    for name in names
    if hasattr(metrics, f"{name}_from_confidence") and name != "dece"
}
OF_PROBS: dict[str, Callable[..., Tensor]] = {
    name: getattr(metrics, f"{name}_from_probabilities")
    for names in GROUPS.values()
    for name in names
    if hasattr(metrics, f"{name}_from_probabilities")
}


class ClassRow(NamedTuple):
    """One class: how often it is true, how probable it is held, and how far the two differ."""

    name: str
    samples: int
    recall: float | None  # None for a class without samples
    frequency: float
    probability: float  # mean p_k over all samples
    ece: float  # against the rest


@dataclass(frozen=True)
class Evaluation:
    """What is known of some predictions."""

    source: str
    kind: str
    n: int
    classes: int | None
    bins: int
    edge: str
    level: float
    metrics: dict[str, Estimate]
    left_out: dict[str, str]  # metric -> why it was not taken
    gap: Estimate  # mean confidence minus accuracy
    chance: Estimate  # the ECE that a calibrated model with these confidences shows
    table: Reliability
    per_class: tuple[ClassRow, ...]

    def omissions(self) -> list[str]:
        """Return why metrics were left out, a line a reason."""
        reasons = dict.fromkeys(self.left_out.values())
        named = {why: [n for n, w in self.left_out.items() if w == why] for why in reasons}
        return [f"Left out: {', '.join(names)} ({why})." for why, names in named.items()]

    def as_json(self) -> dict[str, Any]:
        """Return plain values by metric name; None where infinite, undefined or left out."""
        values = {name: finite(self.metrics[name].value) for name in self.metrics}
        intervals = {
            name: [finite(each.low), finite(each.high)]
            for name, each in self.metrics.items()
            if finite(each.low) is not None
        }
        counts = {"n": self.n, "classes": self.classes, "bins": self.bins, "edge": self.edge}
        both = dict.fromkeys(self.left_out) | values
        ordered = {name: both[name] for names in GROUPS.values() for name in names}
        return ordered | counts | {"intervals": {"level": self.level} | intervals}


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def evaluate(
    predictions: Predictions,
    bins: int = 15,
    edge: str = "right",
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
) -> Evaluation:
    """Measure every metric that `predictions` allow, with bootstrap intervals where affordable.

    >>> from toosure.predictions import from_confidence
    >>> result = evaluate(from_confidence([0.9, 0.8, 0.7, 0.6], [True, True, False, True]))
    >>> round(result.gap.value, 3), round(result.metrics["ece"].value, 3)
    (0.0, 0.35)
    """
    if not 0 < level < 1:
        raise ValueError(f"the level of intervals must lie between 0 and 1; got {level:g}")
    if not 1 <= bins <= MOST_BINS:
        raise ValueError(f"bins must be from 1 to {MOST_BINS:,}; got {bins}")
    names = [name for group in GROUPS.values() for name in group]
    left_out = {name: why for name in names if (why := reason_against(name, predictions))}
    bootstrap: dict[str, Any] = {"level": level, "seed": seed, "samples": samples}
    values = splits(predictions, left_out)
    values |= {
        name: estimate(name, predictions, bins, edge, bootstrap)
        for name in names
        if name not in left_out | values
    }
    table = reliability_from_confidence(
        predictions.confidence, predictions.correct, bins, edge, level=level
    )
    return Evaluation(
        source=predictions.source,
        kind=predictions.kind,
        n=predictions.n,
        classes=predictions.classes,
        bins=bins,
        edge=edge,
        level=level,
        metrics=values,
        left_out=left_out,
        gap=confidence_gap(predictions, **bootstrap),
        chance=calibrated_ece(predictions, bins, edge, **bootstrap),
        table=table,
        per_class=class_rows(predictions, bins, edge),
    )


def reason_against(name: str, predictions: Predictions) -> str | None:
    """Say why a metric cannot be taken of these predictions; None if it can."""
    n, classes = predictions.n, predictions.classes or 1
    if predictions.logits is None and name not in ("accuracy", *LOWER):
        return "needs the probability of every class"
    if name.endswith(PARTS) and n * classes > MOST_SPLIT:
        return f"needs the score at many temperatures, too much for {n * classes:,} numbers"
    if name in PAIRWISE and n < 2:
        return "needs two samples"
    if name in PAIRWISE and n**2 * (classes if name == "skce" else 10) > MOST_PAIRS:
        return f"compares all pairs, too many of {n:,} samples"
    return None


def estimate(
    name: str, predictions: Predictions, bins: int, edge: str, bootstrap: dict[str, Any]
) -> Estimate:
    """Return a metric's value and, where it is affordable, its bootstrap interval.

    Probabilities are taken as they came, by the lower functions: exp(log p) may cross the edge of
    a bin and break ties.
    """
    if name == "accuracy":
        return hit_rate(predictions.correct, bootstrap["level"])
    options: dict[str, Any] = {"bins": bins, "edge": edge} if name in BINNED else {}
    options |= {"bins": bins} if name in ("adaptive_ece", "dece") else {}
    if predictions.logits is None or (predictions.kind == "probs" and name in LOWER):
        pair, metric = (predictions.confidence, predictions.correct), LOWER[name]
        resample: Callable[..., Any] = metrics.confidence_interval_from_confidence
    else:
        assert predictions.labels is not None
        pair, metric = (predictions.logits, predictions.labels), getattr(metrics, name)
        if name in OF_PROBS and predictions.probs is not None:
            pair, metric = (predictions.probs, predictions.labels), OF_PROBS[name]
        resample = metrics.confidence_interval
    if name not in QUICK and (name not in CALLED or pair[0].numel() > MOST_CALLED):
        return Estimate(float(metric(*pair, **options)))
    samples = bootstrap["samples"] if name in QUICK else min(200, bootstrap["samples"])
    found = resample(metric, *pair, **bootstrap | {"samples": samples}, **options)
    return Estimate(*(float(each) for each in found))


def splits(predictions: Predictions, left_out: dict[str, str]) -> dict[str, Estimate]:
    """Return what of each score is calibration and what refinement, without intervals."""
    found = {}
    for name, split_of in SPLITS.items():
        if f"{name}_calibration" not in left_out:
            assert predictions.logits is not None and predictions.labels is not None
            split = split_of(predictions.logits, predictions.labels)
            found[f"{name}_calibration"] = Estimate(float(split.calibration))
            found[f"{name}_refinement"] = Estimate(float(split.refinement))
    return found


def class_rows(predictions: Predictions, bins: int, edge: str) -> tuple[ClassRow, ...]:
    """Return a row a class; none where only confidences came."""
    logits, labels, n = predictions.logits, predictions.labels, predictions.n
    if logits is None or labels is None:
        return ()
    classes = logits.shape[1]
    names = predictions.names or tuple(map(str, range(classes)))
    if predictions.probs is None:
        errors = metrics.classwise_ece(logits, labels, bins, edge, reduction="none")
    else:
        errors = OF_PROBS["classwise_ece"](predictions.probs, labels, bins, edge, reduction="none")
    counts = torch.bincount(labels, minlength=classes)
    hits = torch.bincount(labels[predictions.correct], minlength=classes)
    mass = torch.zeros(classes, dtype=torch.float64)
    for rows in row_chunks(logits):
        mass += rows.softmax(1).sum(0, dtype=torch.float64)
    columns = (counts.tolist(), hits.tolist(), mass.tolist(), errors.tolist())
    return tuple(
        ClassRow(name, count, hit / count if count else None, count / n, total / n, error)
        for name, count, hit, total, error in zip(names, *columns, strict=True)
    )
