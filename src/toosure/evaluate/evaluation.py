"""Evaluate predictions: every metric with its interval, the gap, and one row per class."""

import inspect
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
from toosure.quantities import QUANTITIES, evaluation_groups

MAX_BINS = 1000  # resampling holds a number for each bin and replica
MAX_PAIRS = 2e9  # n^2 times the numbers compared: some seconds
MAX_SPLIT_NUMBERS = 4e6  # in the predictions: a split takes the score at some 45 temperatures
MAX_CALL_NUMBERS = 20_000  # in the predictions of a metric that is called for every replica
MAX_CALLS = 200
SCORE_SPLITS = {"nll": metrics.nll_split, "brier": metrics.brier_split}
PARTS = ("_calibration", "_refinement")
Metric = Callable[..., Tensor]
Bootstrap = dict[str, Any]  # level, seed and samples


def metric_of(key: str, inputs: str = "") -> Metric | None:
    """Return the function of a metric: of logits, or with `inputs` of confidences or probabilities.

    >>> metric_of("ece").__name__, metric_of("ece", "confidence").__name__
    ('ece', 'ece_from_confidence')
    """
    name = f"{key}_from_{inputs}" if inputs else key
    metric = getattr(metrics, name, None)
    return metric if callable(metric) else None


def confidence_is_enough(key: str) -> bool:
    """Whether a metric can be taken of confidences alone."""
    quantity = QUANTITIES[key]
    if metric_of(key) is None:
        return not {"logits", "labels"} & set(quantity.takes) and bool(quantity.compute)
    of_confidence = metric_of(key, "confidence") is not None and not quantity.needs_classes
    return key == "accuracy" or of_confidence


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
        """Return why metrics were left out, one line per reason."""
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
        ordered = {name: both[name] for name in metric_keys()}
        return ordered | counts | {"intervals": {"level": self.level} | intervals}


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def metric_keys() -> list[str]:
    """Return the metrics of an evaluation, in the order of their groups."""
    return [key for keys in evaluation_groups().values() for key in keys]


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
    if not 1 <= bins <= MAX_BINS:
        raise ValueError(f"bins must be from 1 to {MAX_BINS:,}; got {bins}")

    keys = metric_keys()
    left_out = {key: why for key in keys if (why := reason_against(key, predictions))}
    bootstrap: Bootstrap = {"level": level, "seed": seed, "samples": samples}
    estimates = score_parts(predictions, left_out)
    for key in keys:
        if key not in left_out and key not in estimates:
            estimates[key] = estimate(key, predictions, bins, edge, bootstrap)

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
        metrics=estimates,
        left_out=left_out,
        gap=confidence_gap(predictions, **bootstrap),
        chance=calibrated_ece(predictions, bins, edge, **bootstrap),
        table=table,
        per_class=class_rows(predictions, bins, edge),
    )


def reason_against(key: str, predictions: Predictions) -> str | None:
    """Say why a metric cannot be taken of these predictions; None if it can."""
    n = predictions.n
    classes = predictions.classes or 1
    if predictions.logits is None and not confidence_is_enough(key):
        return "needs the probability of every class"
    if key.endswith(PARTS) and n * classes > MAX_SPLIT_NUMBERS:
        return f"needs the score at many temperatures, too much for {n * classes:,} numbers"

    if QUANTITIES[key].pairwise:
        compared = classes if key == "skce" else 10  # numbers per pair
        if n < 2:
            return "needs two samples"
        if n**2 * compared > MAX_PAIRS:
            return f"compares all pairs, too many of {n:,} samples"
    return None


def estimate(
    key: str, predictions: Predictions, bins: int, edge: str, bootstrap: Bootstrap
) -> Estimate:
    """Return a metric's value and, where it is affordable, its bootstrap interval."""
    if key == "accuracy":
        return hit_rate(predictions.correct, bootstrap["level"])
    if metric_of(key) is None:
        return Estimate(value_by_table(key, predictions, bins))

    metric, pair, of_confidence = metric_and_arguments(key, predictions)
    options: dict[str, Any] = {}
    if QUANTITIES[key].binned:
        options["bins"] = bins
        if "edge" in inspect.signature(metric).parameters:
            options["edge"] = edge

    resampled = QUANTITIES[key].resampled
    too_slow = resampled == "calls" and pair[0].numel() > MAX_CALL_NUMBERS
    if not resampled or too_slow:
        return Estimate(float(metric(*pair, **options)))

    samples = bootstrap["samples"]
    if resampled == "calls":
        samples = min(MAX_CALLS, samples)
    resample: Callable[..., metrics.Interval] = metrics.confidence_interval
    if of_confidence:
        resample = metrics.confidence_interval_from_confidence
    interval = resample(metric, *pair, **bootstrap | {"samples": samples}, **options)
    return Estimate(*(float(each) for each in interval))


def metric_and_arguments(
    key: str, predictions: Predictions
) -> tuple[Metric, tuple[Tensor, Tensor], bool]:
    """Return a metric, what to call it with, and whether that is (confidence, correct).

    Probabilities are taken as they came: exp(log p) may cross the edge of a bin and break ties.
    """
    of_confidence = metric_of(key, "confidence") if confidence_is_enough(key) else None
    if of_confidence and (predictions.logits is None or predictions.kind == "probs"):
        return of_confidence, (predictions.confidence, predictions.correct), True

    assert predictions.logits is not None and predictions.labels is not None
    of_probabilities = metric_of(key, "probabilities")
    if of_probabilities and predictions.probs is not None:
        return of_probabilities, (predictions.probs, predictions.labels), False

    metric = metric_of(key)
    assert metric is not None
    return metric, (predictions.logits, predictions.labels), False


def value_by_table(key: str, predictions: Predictions, bins: int) -> float:
    """Return a quantity that is no function of `toosure.metrics`, as the watch computes it."""
    quantity = QUANTITIES[key]
    known = {
        "logits": predictions.logits,
        "labels": predictions.labels,
        "confidence": predictions.confidence,
        "correct": predictions.correct,
        "bins": bins,
    }
    return float(quantity.function(*(known[name] for name in quantity.takes), **quantity.options))


def score_parts(predictions: Predictions, left_out: dict[str, str]) -> dict[str, Estimate]:
    """Return what of each score is calibration and what refinement, without intervals."""
    estimates = {}
    for name, split_of in SCORE_SPLITS.items():
        if f"{name}_calibration" not in left_out:
            assert predictions.logits is not None and predictions.labels is not None
            split = split_of(predictions.logits, predictions.labels)
            estimates[f"{name}_calibration"] = Estimate(float(split.calibration))
            estimates[f"{name}_refinement"] = Estimate(float(split.refinement))
    return estimates


def class_rows(predictions: Predictions, bins: int, edge: str) -> tuple[ClassRow, ...]:
    """Return one row per class; none where only confidences came."""
    logits = predictions.logits
    labels = predictions.labels
    n = predictions.n
    if logits is None or labels is None:
        return ()
    classes = logits.shape[1]
    names = predictions.names or tuple(map(str, range(classes)))

    if predictions.probs is None:
        errors = metrics.classwise_ece(logits, labels, bins, edge, reduction="none")
    else:
        errors = metrics.classwise_ece_from_probabilities(
            predictions.probs, labels, bins, edge, reduction="none"
        )

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
