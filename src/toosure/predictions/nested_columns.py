"""Columns of lists or objects: a list of numbers in each row, or a number for each class's name."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from toosure.predictions.usual_names import PREFIX, SCORES, listed_columns

MAX_SHOWN = 40  # characters of a value in an error


def row_text(row: int) -> str:
    """Return where a row is, for an error."""
    return f"row {row} (line {row + 1} of a .jsonl)"


def shown(value: object) -> str:
    """Return a value for an error, as JSON spells it if it is missing.

    >>> shown(None), shown("x")
    ('null', "'x'")
    """
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def is_number_value(value: object) -> bool:
    """Whether a value of a list or an object is a number, and no boolean."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def score_prefix(name: str) -> str | None:
    """Return what columns of classes begin with, for logits and probabilities; None for others.

    Objects of other names may hold anything: {"bleu": 0.3} in `scores` is no class.

    >>> [score_prefix(name) for name in ("probs", "y_pred_proba", "softmax", "meta")]
    ['probs', 'y_pred_proba', 'probs', None]
    """
    low = name.lower()
    if low not in (*SCORES["logits"], *SCORES["probs"]):
        return None
    if PREFIX.match(f"{name}_a"):
        return name
    return "logits" if low in SCORES["logits"] else "probs"


def class_columns(values: Sequence[Any], name: str) -> dict[str, np.ndarray] | None:
    """Return a column for each class, where every row of scores is an object of numbers; else None.

    >>> columns = class_columns([{"cat": 0.9, "dog": 0.1}, {"dog": 0.7, "cat": 0.3}], "probs")
    >>> {name: values.tolist() for name, values in columns.items()}
    {'probs_cat': [0.9, 0.3], 'probs_dog': [0.1, 0.7]}
    """
    prefix = score_prefix(name)
    if prefix is None or not len(values) or not all(isinstance(value, dict) for value in values):
        return None
    classes = list(values[0])
    if not classes:
        raise ValueError(f"column {name!r} holds empty objects: a number for each class")
    for row, value in enumerate(values):
        if value.keys() != values[0].keys():
            raise ValueError(
                f"column {name!r} has the classes {listed_columns(value)} in {row_text(row)}, and "
                f"{listed_columns(classes)} in row 0: write the same classes in every row"
            )
        for key in classes:
            if not is_number_value(value[key]):
                raise ValueError(
                    f"column {name!r} holds {shown(value[key])} for {key!r} in {row_text(row)}: "
                    "write a number for each class, or drop that row"
                )
    return {f"{prefix}_{key}": np.array([float(row[key]) for row in values]) for key in classes}


def stacked_lists(values: Sequence[Any], name: str) -> np.ndarray:
    """Return lists of one length as an array, a row for each."""
    lengths = [len(value) for value in values]
    usual = Counter(lengths).most_common(1)[0][0]
    if len(set(lengths)) > 1:
        row = next(k for k, length in enumerate(lengths) if length != usual)
        raise ValueError(
            f"column {name!r} has a list of length {lengths[row]} in {row_text(row)}, and of "
            f"length {usual} in other rows: write a number for each class in every row"
        )
    try:
        return np.array([np.asarray(value) for value in values])
    except ValueError as error:
        raise ValueError(f"column {name!r} holds lists within lists, of several lengths") from error


def not_numbers(values: np.ndarray, name: str) -> str:
    """Return the error for a column of lists, objects or mixed values that should be numbers."""
    are_text = values.dtype.kind == "U"
    for row, value in enumerate(values.tolist()):
        if isinstance(value, dict):
            return (
                f"column {name!r} must be numbers; it holds {shown(value)} in {row_text(row)}: "
                "objects of a number for each class are read if they are called probs or logits"
            )
        for cell in value if isinstance(value, list) else [value]:
            if not is_number_value(cell):
                what = f"text, {shown(cell)}," if are_text else shown(cell)
                return (
                    f"column {name!r} must be numbers; it holds {what} in {row_text(row)}: write "
                    "a number for each class, or drop that row"
                )
    return f"column {name!r} must be numbers"
