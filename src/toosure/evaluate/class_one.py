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

# Metrics of a pair (probability, truth). All others keep judging the predicted class.
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
ONLY_TOP_LABEL = ("dece",)  # its soft accuracy is for the predicted class


def is_of_class_one(predictions: Predictions, top_label: bool | None) -> bool:
    """Return whether P(class 1) is judged: if there is one output per example, or on request."""
    if top_label is None:
        return predictions.binary
    if not top_label and predictions.classes != 2:
        raise ValueError(
            f"P(class 1) is of two classes; got {predictions.classes or 'confidences'}"
        )
    return not top_label


def class_one_view(predictions: Predictions) -> Predictions:
    """Return predictions with P(class 1) as confidence, right where class 1 is true."""
    with known_outputs():
        if predictions.probs is None:
            p, true = class_one(predictions.logits, predictions.labels)
        else:
            p, true = class_one(probs=predictions.probs, labels=predictions.labels)
    return replace(predictions, kind="probs", confidence=p, correct=true)


def judge_class_one(result: "Evaluation", uneven: bool) -> GapVerdict:
    """Judge the mean of P(class 1) and the confidence of the predicted class.

    The larger of the two gaps beyond chance is named: probabilities are too high or too low for
    class 1, or too extreme (over-confident) or too timid on both sides.
    """
    assert result.top_gap is not None
    return judge_gaps(result.gap, result.top_gap, result.n, uneven)


def judge_gaps(gap: Estimate, top: Estimate, n: int, uneven: bool = False) -> GapVerdict:
    """Judge two gaps together: of P(class 1) and of the predicted class."""
    if not class_one_is_named(gap, top):
        return judge_gap(top.value, *top.ends, n, uneven=uneven)

    direction = "high" if gap.value > 0 else "low"
    size = size_of(gap.value, *gap.ends)
    return GapVerdict(
        "over" if gap.value > 0 else "under", f"P(class 1) is too {direction} by {size}"
    )


def class_one_is_named(gap: Estimate, top: Estimate) -> bool:
    """Whether the gap of P(class 1) is the one to name.

    Its interval must leave out 0. The gap of the predicted class must be no larger, or its interval
    hold 0.
    """
    larger = abs(gap.value) >= 0.99 * abs(top.value)  # equal where every p lies on one side of 1/2
    return leaves_out_zero(gap) and (larger or not leaves_out_zero(top))


def leaves_out_zero(gap: Estimate) -> bool:
    """Whether the interval of a gap leaves out 0; without an interval, whether the gap does."""
    low, high = gap.ends
    return low > 0 or high < 0


def class_one_means(result: "Evaluation") -> tuple[str, ...]:
    """Return a sentence each on P(class 1) and on the predicted class: mean and frequency."""
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
