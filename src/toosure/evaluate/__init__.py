"""Evaluate predictions: every metric with its interval, and the verdict on them."""

from toosure.evaluate.estimates import Estimate
from toosure.evaluate.evaluation import ClassRow, Evaluation, evaluate
from toosure.evaluate.multilabel import LabelRow, MultilabelEvaluation

__all__ = [
    "ClassRow",
    "Estimate",
    "Evaluation",
    "LabelRow",
    "MultilabelEvaluation",
    "evaluate",
]
