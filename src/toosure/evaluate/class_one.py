"""A binary evaluation: P(class 1) against how often class 1 is true, and the verdict on it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from toosure.evaluate.estimates import Estimate
from toosure.metrics.confidence import class_one
from toosure.metrics.inputs import known_outputs
from toosure.predictions import Predictions
from toosure.verdicts import GapVerdict, judge_gap, signed, size_of

if TYPE_CHECKING:
    from toosure.evaluate.result import Evaluation

# Metrics of a pair (probability, truth); all others stay those of the predicted class.
OF_CLASS_ONE = (
    "ece",
    "adaptive_ece",
    "mce",
    "rmsce",
    "debiased_ece",
    "smece",
    "mmce",
    "sece",
    "kde_ece",
)
ONLY_TOP_LABEL = ("dece",)  # soft accuracy is that of the predicted class


def is_of_class_one(predictions: Predictions, top_label: bool | None) -> bool:
    """Return whether calibration is that of P(class 1): of one output per example, or if asked."""
    if top_label is None:
        return predictions.binary
    if not top_label and predictions.classes != 2:
        raise ValueError(
            f"P(class 1) is of two classes; got {predictions.classes or 'confidences'}"
        )
    return not top_label


def class_one_view(predictions: Predictions) -> Predictions:
    """Return predictions whose confidence is P(class 1), and which are right where it is true."""
    with known_outputs():
        if predictions.probs is None:
            p, true = class_one(predictions.logits, predictions.labels)
        else:
            p, true = class_one(probs=predictions.probs, labels=predictions.labels)
    return replace(predictions, kind="probs", confidence=p, correct=true)


def judge_class_one(result: "Evaluation", uneven: bool) -> GapVerdict:
    """Judge the mean of P(class 1) first, then the confidence of the predicted class.

    The larger of the two gaps that leave out 0 is named: probabilities too high or too low for
    class 1, or too extreme (over-confident) or too timid on both sides.
    """
    assert result.top_gap is not None
    return judge_gaps(result.gap, result.top_gap, result.n, uneven)


def judge_gaps(gap: Estimate, top: Estimate, n: int, uneven: bool = False) -> GapVerdict:
    """Judge the gap of P(class 1) and that of the predicted class together."""
    if not class_one_is_named(gap, top):
        return judge_gap(top.value, *top.ends, n, uneven=uneven)

    direction = "high" if gap.value > 0 else "low"
    size = size_of(gap.value, *gap.ends)
    return GapVerdict(
        "over" if gap.value > 0 else "under", f"P(class 1) is too {direction} by {size}"
    )


def class_one_is_named(gap: Estimate, top: Estimate) -> bool:
    """Whether the gap of P(class 1) leaves out 0, and that of the predicted class is no larger.

    A larger one counts only where it leaves out 0 itself.
    """
    larger = abs(gap.value) >= 0.99 * abs(top.value)  # equal where every p lies on one side of 1/2
    return leaves_out_zero(gap) and (larger or not leaves_out_zero(top))


def leaves_out_zero(gap: Estimate) -> bool:
    """Whether a gap is beyond chance; without an interval, whether it is not 0."""
    low, high = gap.ends
    return low > 0 or high < 0


def class_one_means(result: "Evaluation") -> tuple[str, ...]:
    """Say what was given to class 1 and how often it was true, and the same of the prediction."""
    gap = result.gap
    top = result.top_gap
    assert top is not None
    accuracy = result.metrics["accuracy"].value
    level = f"{100 * result.level:g} % interval"

    of_class = (
        f"P(class 1) is {100 * (result.frequency + gap.value):.1f} % on average, and class 1 is "
        f"true in {100 * result.frequency:.1f} % of {result.n:,} samples: a gap of "
        f"{signed(gap.value)} points ({level} {signed_span(gap)})."
    )
    of_prediction = (
        f"The predicted class is claimed at {100 * (accuracy + top.value):.1f} % and right in "
        f"{100 * accuracy:.1f} %: a gap of {signed(top.value)} points ({level} "
        f"{signed_span(top)}), above 0 where the model is too sure."
    )
    return of_class, of_prediction


def signed_span(estimate: Estimate) -> str:
    """Return an interval in points, with signs."""
    low, high = estimate.ends
    return f"{signed(low)} to {signed(high)}"
