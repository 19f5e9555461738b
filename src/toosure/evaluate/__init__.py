"""Evaluate predictions: every metric with its interval, and the verdict on them."""

from toosure.evaluate.estimates import Estimate
from toosure.evaluate.evaluation import ClassRow, Evaluation, evaluate

__all__ = ["ClassRow", "Estimate", "Evaluation", "evaluate"]
