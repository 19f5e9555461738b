"""Evaluate predictions: every metric with its interval, the gap, and one row per class."""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict

from torch import Tensor

from toosure import metrics
from toosure.evaluate.absent_classes import absence_notes
from toosure.evaluate.class_gaps import gaps_by_class
from toosure.evaluate.class_one import OF_CLASS_ONE, ONLY_TOP_LABEL, class_one_view
from toosure.evaluate.estimates import (
    Estimate,
    calibrated_ece,
    confidence_gap,
    estimate_of,
    hit_rate,
)
from toosure.evaluate.grouped import grouped_chance, grouped_gap, grouped_hit_rate
from toosure.evaluate.log_zero import labels_at_zero
from toosure.evaluate.per_class import class_rows
from toosure.evaluate.result import Evaluation, wanted_keys
from toosure.metrics.binned import reliability_from_confidence
from toosure.metrics.inputs import check_level, known_outputs
from toosure.predictions import Predictions
from toosure.quantities import QUANTITIES

MAX_BINS = 1000  # resampling holds a number for each bin and replica
MAX_PAIRS = 2e9  # n^2 times the numbers compared: some seconds
MAX_SPLIT_NUMBERS = 4e6  # in the predictions: a split takes the score at some 45 temperatures
MAX_CALL_NUMBERS = 20_000  # in the predictions of a metric that is called for every replica
MAX_CALLS = 200
SCORE_SPLITS = {"nll": metrics.nll_split, "brier": metrics.brier_split}
OF_PREDICTED_CLASS = "is of the predicted class: say top_label=True, or --top-label"
PARTS = ("_calibration", "_refinement")
# Read probabilities as they came: exp(log p) may cross the edge of a bin or break a tie.
READ_PROBABILITIES = ("classwise_ece", "auroc_ovr", "auroc_ovr_binned", "skce")
Metric = Callable[..., Tensor]


class Resampling(TypedDict):
    """How intervals are found: their level, and how often and by which seed rows are drawn."""

    level: float
    seed: int
    samples: int


def check_level_and_bins(level: float, bins: int) -> None:
    """Raise unless intervals at this level can be resampled over this number of bins."""
    check_level(level)
    if not 1 <= bins <= MAX_BINS:
        raise ValueError(f"bins must be from 1 to {MAX_BINS:,}; got {bins}")


def metric_of(key: str, from_confidence: bool = False) -> Metric | None:
    """Return the function of a metric, of logits or of confidences; None if there is none.

    >>> metric_of("ece").__name__, metric_of("ece", from_confidence=True).__name__
    ('ece', 'ece_from_confidence')
    """
    name = f"{key}_from_confidence" if from_confidence else key
    metric = getattr(metrics, name, None)
    return metric if callable(metric) else None


def confidence_is_enough(key: str) -> bool:
    """Whether a metric can be computed from confidences alone."""
    quantity = QUANTITIES[key]
    if metric_of(key) is None:
        return not {"logits", "labels"} & set(quantity.takes) and bool(quantity.compute)
    of_confidence = metric_of(key, from_confidence=True) is not None and not quantity.needs_classes
    return key == "accuracy" or of_confidence


def evaluate_classes(
    predictions: Predictions,
    of_class_one: bool,
    bins: int,
    edge: str,
    bootstrap: Resampling,
    wanted: Collection[str] | None = None,
) -> Evaluation:
    """Measure the predicted class, or P(class 1), of one label per row."""
    # Judged are confidence and hits of the predicted class, or P(class 1) and its truth.
    judged = class_one_view(predictions) if of_class_one else predictions

    keys = wanted_keys(wanted)
    left_out = {key: why for key in keys if (why := reason_against(key, predictions))}
    if of_class_one:
        left_out |= {key: OF_PREDICTED_CLASS for key in ONLY_TOP_LABEL if key in keys}
    estimates = score_parts(predictions, keys, left_out)
    class_gaps = gaps_by_class(predictions, **bootstrap)
    if class_gaps is not None and "class_gap" in keys:
        estimates["class_gap"] = class_gaps.spread
    for key in keys:
        if key not in left_out and key not in estimates:
            source = judged if key in OF_CLASS_ONE else predictions
            estimates[key] = estimate(key, source, bins, edge, bootstrap)

    return Evaluation(
        source=predictions.source,
        kind=predictions.kind,
        n=predictions.n,
        classes=predictions.classes,
        bins=bins,
        edge=edge,
        level=bootstrap["level"],
        metrics=estimates,
        left_out=left_out,
        gap=gap_of(judged, bootstrap),
        chance=chance_of(judged, bins, edge, bootstrap),
        table=reliability_from_confidence(
            judged.confidence, judged.correct, bins, edge, level=bootstrap["level"]
        ),
        per_class=class_rows(predictions, bins, edge) if wanted is None else (),
        class_one=of_class_one,
        top_gap=gap_of(predictions, bootstrap) if of_class_one else None,
        groups=None if predictions.groups is None else int(predictions.groups.max()) + 1,
        group_name=predictions.group_name,
        class_gaps=class_gaps,
        zeros=labels_at_zero(predictions),
        notes=absence_notes(predictions),
    )


def gap_of(predictions: Predictions, bootstrap: Resampling) -> Estimate:
    """Return mean confidence minus accuracy, resampling rows or whole groups."""
    take = confidence_gap if predictions.groups is None else grouped_gap
    return take(predictions, **bootstrap)


def chance_of(predictions: Predictions, bins: int, edge: str, bootstrap: Resampling) -> Estimate:
    """Return the ECE that chance gives, over independent rows or over groups."""
    take = calibrated_ece if predictions.groups is None else grouped_chance
    return take(predictions, bins, edge, **bootstrap)


def reason_against(key: str, predictions: Predictions) -> str | None:
    """Return why a metric cannot be computed for these predictions; None if it can."""
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
    key: str, predictions: Predictions, bins: int, edge: str, bootstrap: Resampling
) -> Estimate:
    """Return a metric's value and, where it is affordable, its bootstrap interval."""
    if key == "accuracy" and predictions.groups is not None:
        return grouped_hit_rate(predictions, **bootstrap)
    if key == "accuracy":
        return hit_rate(predictions.correct, bootstrap["level"])
    if metric_of(key) is None:
        return Estimate(value_by_table(key, predictions, bins))

    metric, inputs = metric_and_inputs(key, predictions)
    options: dict[str, Any] = {}
    if QUANTITIES[key].binned:
        options["bins"] = bins
        if "edge" in inspect.signature(metric).parameters:
            options["edge"] = edge

    resampled = QUANTITIES[key].resampled
    too_slow = resampled == "calls" and next(iter(inputs.values())).numel() > MAX_CALL_NUMBERS
    if not resampled or too_slow:
        with known_outputs():
            return Estimate(float(metric(**inputs, **options)))

    samples = bootstrap["samples"]
    if resampled == "calls":
        samples = min(MAX_CALLS, samples)
    resample: Callable[..., metrics.Interval] = metrics.confidence_interval
    if "confidence" in inputs:
        resample = metrics.confidence_interval_from_confidence
    options |= bootstrap | {"samples": samples, "groups": predictions.groups}
    with known_outputs():
        return estimate_of(resample(metric, **inputs, **options))


def metric_and_inputs(key: str, predictions: Predictions) -> tuple[Metric, dict[str, Tensor]]:
    """Return a metric, and the inputs to call it with: confidences where they are enough."""
    of_confidence = metric_of(key, from_confidence=True) if confidence_is_enough(key) else None
    # Logits still rank rows where confidence is rounded to 1.
    ranks_logits = predictions.kind == "logits" and QUANTITIES[key].group == "Ranking"
    if of_confidence and not ranks_logits:
        pair = {"confidence": predictions.confidence, "correct": predictions.correct}
        return of_confidence, pair

    assert predictions.logits is not None and predictions.labels is not None
    metric = metric_of(key)
    assert metric is not None
    if key in READ_PROBABILITIES and predictions.probs is not None:
        return metric, {"probs": predictions.probs, "labels": predictions.labels}
    return metric, {"logits": predictions.logits, "labels": predictions.labels}


def value_by_table(key: str, predictions: Predictions, bins: int) -> float:
    """Return a quantity that is not in `toosure.metrics`, computed as in a watch."""
    quantity = QUANTITIES[key]
    known = {
        "logits": predictions.logits,
        "labels": predictions.labels,
        "confidence": predictions.confidence,
        "correct": predictions.correct,
        "bins": bins,
    }
    return float(quantity.function(*(known[name] for name in quantity.takes), **quantity.options))


def score_parts(
    predictions: Predictions, keys: Sequence[str], left_out: dict[str, str]
) -> dict[str, Estimate]:
    """Return the calibration and the refinement part of each score, without intervals."""
    estimates = {}
    for name, split_of in SCORE_SPLITS.items():
        if f"{name}_calibration" in keys and f"{name}_calibration" not in left_out:
            assert predictions.logits is not None and predictions.labels is not None
            split = split_of(predictions.logits, predictions.labels)
            estimates[f"{name}_calibration"] = Estimate(float(split.calibration))
            estimates[f"{name}_refinement"] = Estimate(float(split.refinement))
    return estimates
