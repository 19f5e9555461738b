"""The gap of each predicted class: its interval, and whether chance explains it.

A network can be right on average while one class is 16 points too low and another 7 too high. The
gap of all rows cancels, the ECE pools classes of equal confidence, and classwise ECE counts the
probability of a class on all rows, most of which belong to other classes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.evaluate.class_chance import chance_of_groups, chance_of_rows
from toosure.evaluate.class_intervals import gap_ends_of_groups, gap_ends_of_rows, spread_of_classes
from toosure.evaluate.estimates import Estimate, single_level
from toosure.metrics.predicted_classes import class_table
from toosure.predictions import Predictions

MAX_CLASSES = 1000  # of more classes, only the most often predicted ones are judged
MIN_GAP = 0.03  # smaller gaps are not named: with many rows a tenth of a point is beyond chance


class ClassGap(NamedTuple):
    """The rows of one predicted class."""

    number: int
    name: str
    n: int
    gap: Estimate  # mean confidence minus accuracy; intervals of all classes hold together
    excess: float  # its own part: the gap minus the gap of all rows of the same confidences
    adjusted_p: float  # how often chance lets any class stand out as far

    def is_miscalibrated(self, level: float) -> bool:
        """Whether the class is worth a sentence.

        It differs from rows of the same confidence beyond chance, its interval leaves out 0, and
        both its gap and its own part of the gap are `MIN_GAP` or more, with the same sign.
        """
        assert self.gap.low is not None and self.gap.high is not None
        shown = self.adjusted_p <= 1 - level and not self.gap.low <= 0 <= self.gap.high
        sign = 1 if self.gap.value > 0 else -1
        return shown and sign * self.gap.value >= MIN_GAP and sign * self.excess >= MIN_GAP


@dataclass(frozen=True)
class ClassGaps:
    """All predicted classes, in the order of their numbers."""

    classes: tuple[ClassGap, ...]
    spread: Estimate  # standard deviation of the own parts over rows, without chance
    level: float  # at which all intervals hold together

    @property
    def p_value(self) -> float:
        """How often chance lets any class stand out as far as the one that does most."""
        return min(each.adjusted_p for each in self.classes)

    @property
    def miscalibrated(self) -> tuple[ClassGap, ...]:
        """The classes worth a sentence, the largest gap first."""
        named = [each for each in self.classes if each.is_miscalibrated(self.level)]
        return tuple(sorted(named, key=lambda each: -abs(each.gap.value)))

    def as_json(self) -> dict[str, Any]:
        """Return p-value, correction and the gap of each class as plain values."""
        return {
            "p_value": self.p_value,
            "spread": list(self.spread),
            "level": self.level,
            "correction": {"intervals": "bonferroni", "p_values": "largest of all classes"},
            "miscalibrated": [each.name for each in self.miscalibrated],
            "classes": [
                {
                    "class": each.name,
                    "n": each.n,
                    "gap": list(each.gap),
                    "excess": each.excess,
                    "p_value": each.adjusted_p,
                }
                for each in self.classes
            ],
        }


def gaps_by_class(
    predictions: Predictions, level: float = 0.95, seed: int = 0, samples: int = 1000
) -> ClassGaps | None:
    """Judge confidence minus accuracy of each predicted class; None without class probabilities.

    >>> from toosure.predictions import from_probs
    >>> probs, labels = [[0.75, 0.25], [0.25, 0.75]] * 200, [0, 1, 0, 1, 1, 1, 1, 1] * 50
    >>> found = gaps_by_class(from_probs(probs, labels))  # 0 is right in a half, 1 always
    >>> [(each.name, each.n, round(each.gap.value, 3)) for each in found.miscalibrated]
    [('0', 200, 0.25), ('1', 200, -0.25)]
    """
    if predictions.logits is None:
        return None
    outputs = predictions.logits if predictions.probs is None else predictions.probs
    predicted = outputs.argmax(1)
    correct = predictions.correct
    confidence = predictions.confidence
    groups = predictions.groups

    kept = most_predicted(predicted)
    if kept is not None:
        predicted, correct, confidence = predicted[kept], correct[kept], confidence[kept]
        groups = None if groups is None else groups[kept]

    table = class_table(confidence, correct, predicted)
    single = single_level(level, len(table.classes))
    if groups is None:
        chance = chance_of_rows(table, seed, samples)
        ends = gap_ends_of_rows(table, single)
    else:
        chance = chance_of_groups(table, correct, groups, seed, samples)
        ends = gap_ends_of_groups(table, confidence.double() - correct.double(), groups, single)

    columns = (table.classes, table.rows().long(), table.gaps(), table.excess())
    known = (*columns, *ends, chance.adjusted_p)
    rows = zip(*(column.tolist() for column in known), strict=True)
    names = predictions.names
    classes = tuple(
        ClassGap(k, names[k] if names else str(k), n, Estimate(gap, low, high), excess, p)
        for k, n, gap, excess, low, high, p in rows
    )
    return ClassGaps(classes, spread_of_classes(table, chance, level), level)


def most_predicted(predicted: Tensor) -> Tensor | None:
    """Return the rows of the `MAX_CLASSES` most often predicted classes; None for all rows."""
    counts = predicted.bincount()
    if int((counts > 0).sum()) <= MAX_CLASSES:
        return None
    return torch.isin(predicted, counts.topk(MAX_CLASSES).indices)
