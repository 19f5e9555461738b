"""Scores of all tokens or pixels of an array, whether they are labelled or not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.predictions.kinds import guess_kind, kind_of_one
from toosure.predictions.layout import layout_of
from toosure.predictions.options import ReadOptions, check_classes
from toosure.predictions.predictions import FROM_ARRAYS, Kind, Predictions, as_array


def of_all_positions(
    arrays: Mapping[str, Any],
    score: str,
    scores: Tensor,
    truth: str | None,
    kind: Kind | None,
    options: ReadOptions,
) -> Predictions:
    """Take scores of all tokens or pixels, each as class 0; the other arrays go along unread.

    Lists, as of texts, do not, unless they are the labels.
    """
    labels = None if truth is None else arrays[truth]
    layout = layout_of(scores, labels)
    rows = layout.rows(scores)
    empty = is_padding(rows, labels)
    if empty.any() and not empty.all():
        layout = layout._replace(empty=empty)
        rows = torch.where(empty.unsqueeze(1) if rows.ndim > 1 else empty, rows[~empty][0], rows)
    if kind is None:
        kind = kind_of_one(score, rows.reshape(-1)) if is_one_column(rows) else guess_kind(rows)
    predictions = FROM_ARRAYS[kind](rows, torch.zeros(len(rows), dtype=torch.int64))
    check_classes(options, predictions.classes)
    others = {
        name: as_array(values, name)
        for name, values in arrays.items()
        if name != score and (name == truth or hasattr(values, "shape"))
    }
    return replace(predictions, names=options.classes, extras=others, layout=layout)


def is_padding(rows: Tensor, labels: Any) -> Tensor:
    """Whether rows have neither scores, all being 0 or not finite, nor a label of 0 or more."""
    cells = rows.reshape(len(rows), -1)
    no_scores = ~cells.isfinite().all(1) | (cells == 0).all(1)
    numbers = np.asarray(labels).reshape(-1)
    if len(numbers) != len(rows) or numbers.dtype.kind not in "biuf":  # none, or texts
        return torch.zeros_like(no_scores)
    return no_scores & torch.from_numpy(~(numbers >= 0))
