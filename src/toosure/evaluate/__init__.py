"""Evaluate predictions: every metric with its interval, and the verdict on them."""

from toosure.evaluate.by_kind import evaluate
from toosure.evaluate.class_gaps import ClassGap, ClassGaps
from toosure.evaluate.estimates import Estimate
from toosure.evaluate.multilabel import LabelRow, MultilabelEvaluation
from toosure.evaluate.per_class import ClassRow
from toosure.evaluate.result import Evaluation

__all__ = [
    "ClassGap",
    "ClassGaps",
    "ClassRow",
    "Estimate",
    "Evaluation",
    "LabelRow",
    "MultilabelEvaluation",
    "evaluate",
]
