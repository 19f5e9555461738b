"""Predictions in a table: its scores and labels, read and checked."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from toosure.predictions.binary_hint import as_typed, binary_options
from toosure.predictions.class_names import check_positive_second, names_of, shown_names
from toosure.predictions.columns import (
    OR_NAME,
    Columns,
    check_complete,
    is_numbers,
    number_column,
    other_columns,
    stacked,
)
from toosure.predictions.csv_files import is_decimal, no_header
from toosure.predictions.kinds import doubt_of_logits, kind_of_columns
from toosure.predictions.labels import (
    class_numbers,
    flat,
    ignored_note,
    kept_rows,
    some_missing,
    spelled_labels,
)
from toosure.predictions.numbered_columns import in_class_order
from toosure.predictions.one_based import one_based_note
from toosure.predictions.options import ReadOptions
from toosure.predictions.predictions import (
    Predictions,
    from_confidence,
    from_logits,
    from_probs,
)
from toosure.predictions.read_note import labels_read, scores_read
from toosure.predictions.row_groups import check_group_name, group_array, groups_note, with_groups
from toosure.predictions.score_columns import score_columns, score_columns_or_none
from toosure.predictions.truth_words import parse_booleans
from toosure.predictions.usual_names import (
    CORRECT,
    LABELS,
    PREDICTED,
    SCORES,
    WEAK_LABELS,
    any_is_other,
    class_of,
    listed_columns,
    pick,
    pick_label,
)

CLASS_ZERO = re.compile(r"(?i)(p|prob|probs|proba|probability|class)[_ .:\-]?0")


def text_columns(names: Sequence[str], options: ReadOptions) -> list[str]:
    """Return the columns of a .csv that are text though they look like numbers.

    Labels and hits, and groups: 01 and 1 are two.
    """
    strong = any(name.lower() in LABELS for name in names)
    labels = LABELS if strong else WEAK_LABELS
    asked = (options.label, options.groups)
    return [n for n in names if n in asked or n.lower() in (*labels, *CORRECT)]


def from_table(columns: Columns, options: ReadOptions) -> Predictions:
    """Take a table; where a binary one cannot be read, name the options with which it can."""
    try:
        return read_table(columns, options)
    except ValueError as error:
        asked = binary_options(columns, options)
        if asked is None or not is_readable(columns, asked):
            raise
        raise ValueError(f"{error}. Or all at once, {as_typed(asked)}") from error


def is_readable(columns: Columns, options: ReadOptions) -> bool:
    """Whether a table can be read with these options."""
    try:
        read_table(columns, options)
    except ValueError:
        return False
    return True


def read_table(columns: Columns, options: ReadOptions) -> Predictions:
    """Take a table: scores by class and labels, or confidences and whether each was correct."""
    if options.split:
        raise ValueError("--split chooses arrays of .npz and .pt; a table has none")
    names = list(columns)
    label = pick_label(names, options.label) or label_by_values(columns)
    confidence = pick(names, SCORES["confidence"], "confidences", "--columns")
    correct = pick(names, CORRECT, "what was correct", "--columns")
    check_group_name(options, columns, label, confidence, correct)

    asked = options.kind == "confidence"
    if asked or (options.kind is None and label is None and not options.columns):
        if confidence and correct:
            return confidence_table(columns, confidence, correct, options)
        if asked or (confidence and not label):
            needed = "confidence" if correct else "correct"
            raise ValueError(f"no column {needed!r}; it holds {listed_columns(names)}")

    if any(len(values) == 0 for values in columns.values()):
        raise ValueError("is empty: there are no rows below the names of the columns")
    if label is None and not (options.unlabelled and columns):
        raise ValueError(no_labels(names))
    if label and confidence and correct and not options.kind and not options.columns:
        chosen = score_columns_or_none(columns, label, options)
        if chosen is None:
            return confidence_table(columns, confidence, correct, options)
    return class_table(columns, label, options)


def no_labels(names: Sequence[str]) -> str:
    """Return the error for a table without a column of labels."""
    remedy = "say which holds the true class, --label-column NAME"
    if any(map(is_decimal, names)) and not any_is_other(names):
        return f"{no_header(list(names))}; if these are names, {remedy}"
    there = f"no column 'label'; it holds {listed_columns(names)}"
    return f"{there}: {remedy}" if names else there


def label_by_values(columns: Columns) -> str | None:
    """Return the one column of text that only names classes, which are columns; None if none is.

    Predicted classes are not labels.
    """
    classes = {class_of(name) for name, values in columns.items() if is_numbers(values)}
    texts = [
        name
        for name, values in columns.items()
        if values.dtype.kind == "U" and len(values) and set(values.tolist()) <= classes
        if name.lower() not in PREDICTED
    ]
    return texts[0] if len(texts) == 1 and len(classes) > 1 else None


def confidence_table(
    columns: Columns, confidence: str, correct: str, options: ReadOptions
) -> Predictions:
    """Take the columns of confidences and hits."""
    numbers = number_column(columns, confidence)
    every = np.ones(len(numbers), dtype=bool)
    check_complete(columns, [confidence], every)
    predictions = from_confidence(numbers, parse_booleans(flat(columns[correct])))
    extras = other_columns(columns, (confidence,), every)
    predictions = with_groups(replace(predictions, extras=extras), options)

    remarks = [f"read confidences from {confidence!r}, hits from {correct!r}"]
    remarks.append(groups_note(predictions, options))
    return replace(predictions, note=", ".join(filter(None, remarks)))


def class_table(columns: Columns, label: str | None, options: ReadOptions) -> Predictions:
    """Take a table of scores and labels; without a label every row counts as class 0."""
    chosen = score_columns(columns, label, options)
    if label and options.unlabelled and some_missing(columns[label]):
        label = None  # scores need none
    labels, kept = labels_of(columns, label, len(columns[chosen[0]]), options)
    chosen = in_class_order(chosen, spelled_labels(labels) if label else set(), options)
    check_complete(columns, chosen, kept, "" if options.columns else OR_NAME)
    scores = stacked(columns, chosen)[torch.from_numpy(kept)]
    kind = options.kind or kind_of_columns(chosen, scores)

    binary = scores.shape[1] == 1
    if binary:
        check_class_one(chosen[0], columns, options)
    classes = 2 if binary else scores.shape[1]
    class_names = names_of(chosen, scores.shape[1], labels, options)

    numbers = labels
    if label is not None:
        numbers = numbered_labels(labels, class_names, classes, binary, chosen, options)

    one_or_all = scores[:, 0] if binary else scores
    if kind == "logits":
        predictions = from_logits(one_or_all, numbers, kind_given=True)
    else:
        predictions = from_probs(one_or_all, numbers)
    predictions = replace(predictions, extras=other_columns(columns, chosen, kept))
    predictions = with_groups(predictions, options)

    remarks = [f"read {scores_read(kind, chosen, scores.shape[1], class_names)}"]
    shown = shown_names(chosen, class_names, options)
    remarks.append(labels_read(label, labels, class_names, shown, binary))
    if label and not options.classes:
        remarks.append(one_based_note(predictions, labels, class_names))
    remarks.append(groups_note(predictions, options))
    used = (*chosen, label, group_array(predictions, options))
    unused = [name for name in columns if name not in used]
    if unused:
        remarks.append(f"left out {listed_columns(unused)}")
    if options.ignore_index is not None:
        remarks.append(ignored_note(int((~kept).sum())))
    remarks.append(doubt_of_logits(chosen[0], predictions, options.kind))
    return replace(
        predictions,
        names=shown if len(class_names) == classes else (),
        note=", ".join(filter(None, remarks)),
        column=chosen[0] if binary else "",
    )


def numbered_labels(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    classes: int,
    binary: bool,
    chosen: Sequence[str],
    options: ReadOptions,
) -> np.ndarray:
    """Number the labels by the names of the classes, unless yes and no contradict their order."""
    if not options.classes and options.columns != tuple(chosen):  # the user said no order
        check_positive_second(labels, class_names, chosen)
    return class_numbers(labels, class_names, classes, binary, names_given=bool(options.classes))


def labels_of(
    columns: Columns, label: str | None, rows: int, options: ReadOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of the rows to read, and which rows these are; without a column all 0."""
    if label is None:
        return np.zeros(rows, dtype=np.int64), np.ones(rows, dtype=bool)
    labels = flat(columns[label])
    kept = kept_rows(labels, options.ignore_index)
    return labels[kept], kept


def check_class_one(name: str, columns: Columns, options: ReadOptions) -> None:
    """Refuse a single column that is named as the probability of class 0."""
    called = f"{name!r} is named as the probability of class 0"
    if name.endswith("_0") and f"{name[:-1]}1" in columns:
        raise ValueError(
            f"{called}, and one column is read as that of class 1: take {name[:-1]}1, or both"
        )
    if CLASS_ZERO.fullmatch(name) and not options.columns and not options.classes:
        raise ValueError(
            f"{called}: if it is, say --classes 1,0; if it is that of class 1, --columns {name}"
        )
