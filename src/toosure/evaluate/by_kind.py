"""`evaluate`: one function for every kind of predictions."""

from collections.abc import Collection, Sequence
from typing import Literal, TypedDict, Unpack, overload

import numpy as np

from toosure.evaluate.arrays import predictions_of
from toosure.evaluate.class_one import is_of_class_one
from toosure.evaluate.evaluation import Resampling, check_level_and_bins, evaluate_classes
from toosure.evaluate.multilabel import MultilabelEvaluation, evaluate_multilabel
from toosure.evaluate.result import Evaluation
from toosure.metrics.inputs import ArrayLike
from toosure.predictions import Predictions, from_frame, is_frame


class Options(TypedDict, total=False):
    """The options of `evaluate`, except `multilabel`."""

    probs: ArrayLike | None
    bins: int
    edge: str
    level: float
    seed: int
    samples: int
    ignore_index: int | None
    groups: ArrayLike | str | None
    names: Sequence[str] | np.ndarray
    top_label: bool | None
    label: str | None
    columns: str | Sequence[str]
    metrics: Collection[str] | None


@overload
def evaluate(
    predictions: Predictions | ArrayLike | None = ...,
    labels: ArrayLike | None = ...,
    *,
    multilabel: Literal[False] = ...,
    **options: Unpack[Options],
) -> Evaluation: ...


@overload
def evaluate(
    predictions: Predictions | ArrayLike | None = ...,
    labels: ArrayLike | None = ...,
    *,
    multilabel: Literal[True],
    **options: Unpack[Options],
) -> MultilabelEvaluation: ...


def evaluate(
    predictions: Predictions | ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    multilabel: bool = False,
    ignore_index: int | None = -100,
    groups: ArrayLike | str | None = None,
    names: Sequence[str] | np.ndarray = (),
    top_label: bool | None = None,
    label: str | None = None,
    columns: str | Sequence[str] = (),
    metrics: Collection[str] | None = None,
) -> Evaluation | MultilabelEvaluation:
    """Measure every metric that predictions allow, with bootstrap intervals where affordable.

    Give `Predictions`, or logits (or `probs=`) and labels: (N,) or (N, 1) of a binary classifier,
    (N, C), tokens (N, T, C) or pixels (N, C, H, W), or with `multilabel` independent outputs (N, K)
    with labels (N, K). Labels that are `ignore_index` are left out. `groups` (N,) are resampled
    whole, as sequences and images are. One output per example is judged by P(class 1), others by
    the predicted class; `top_label` chooses one of the two. `bins` and `edge` are options of `ece`,
    `names` are the classes, and labels may be such names. Intervals hold at `level`, from
    `samples` draws with `seed`.

    Or give a data frame with the column of its labels, `label`, and of its scores, `columns`, where
    their names do not say it; `groups` may be a column, too. `metrics` names the ones to measure,
    without rows per class; accuracy and ECE, on which the verdict rests, always are.

    >>> from toosure.predictions import from_confidence
    >>> result = evaluate(from_confidence([0.9, 0.8, 0.7, 0.6], [True, True, False, True]))
    >>> round(result.gap.value, 3), round(result.metrics["ece"].value, 3)
    (0.0, 0.35)
    """
    check_level_and_bins(level, bins)
    bootstrap: Resampling = {"level": level, "seed": seed, "samples": samples}
    names = tuple(map(str, names))  # `classes_` of scikit-learn is an array

    if multilabel:
        if isinstance(predictions, Predictions) or groups is not None:
            raise ValueError("multilabel takes arrays (N, K) of outputs and labels, and no groups")
        return evaluate_multilabel(
            predictions, labels, probs, bins, edge, ignore_index, names, **bootstrap
        )

    if is_frame(predictions) and labels is None:
        column = groups if isinstance(groups, str) else None
        predictions = from_frame(predictions, label, columns, classes=names, groups=column)
        groups = groups if column is None else None
        names = ()
    if isinstance(groups, str):
        raise ValueError("groups names a column of a data frame only: give one for each row, (N,)")
    given = predictions_of(predictions, labels, probs, ignore_index, groups, names)
    of_class_one = is_of_class_one(given, top_label)
    return evaluate_classes(given, of_class_one, bins, edge, bootstrap, metrics)
