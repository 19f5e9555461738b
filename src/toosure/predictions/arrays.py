"""Predictions in named arrays: which of them are scores and labels, and of what kind."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.distributions import distribution_problem
from toosure.metrics.group_draws import group_numbers
from toosure.metrics.positions import flatten_positions
from toosure.predictions.array_names import missing_array, pick_scores, score_name, truth_name
from toosure.predictions.kinds import check_log_probs, doubt_of_logits, guess_kind, kind_of_one
from toosure.predictions.labels import (
    by_name_note,
    class_numbers,
    flat,
    ignored_note,
    kept_rows,
    numbered_otherwise,
    some_missing,
)
from toosure.predictions.one_based import one_based_note
from toosure.predictions.options import ReadOptions, check_classes
from toosure.predictions.predictions import (
    FROM_ARRAYS,
    Kind,
    Predictions,
    as_array,
    as_tensor,
    from_confidence,
)
from toosure.predictions.row_groups import (
    check_group_name,
    group_array,
    groups_note,
    groups_of,
    with_groups,
)
from toosure.predictions.truth_words import parse_booleans
from toosure.predictions.unlabelled_positions import of_all_positions
from toosure.predictions.usual_names import (
    CLASS_NAMES,
    CORRECT,
    listed_columns,
    pick,
    pick_label,
)


def from_arrays(arrays: Mapping[str, Any], options: ReadOptions) -> Predictions:
    """Take named arrays; without a kind their names say it, or else their values."""
    prefix = f"{options.split}_" if options.split else ""
    names = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    own = {name: arrays[prefix + name] for name in names}

    kind, score = pick_scores(names, options)
    if kind == "confidence":
        truth = pick(names, CORRECT, "what was correct", "--label-column")
    else:
        truth = pick_label(names, options.label)
    if score is None or (truth is None and not options.unlabelled):
        missing = score_name(kind) if score is None else truth_name(kind)
        raise ValueError(missing_array(prefix + missing, arrays, options))
    check_group_name(options, own, score, truth)

    if kind == "confidence":
        confidence = as_vector(own[score])
        right = np.zeros(len(confidence)) if truth is None else hits(own[truth])
        predictions = from_confidence(confidence, right)
        predictions = replace(predictions, extras=row_arrays(own, score, predictions.n))
        predictions = with_groups(predictions, options)
    else:
        predictions = of_classes(own, score, truth, kind, options)

    remarks = [predictions.note, groups_note(predictions, options)]
    remarks.append(left_out_note(own, score, truth, group_array(predictions, options)))
    guessed = (score, truth) != (score_name(predictions.kind), truth_name(predictions.kind))
    if truth is None:
        remarks.insert(0, "no labels")
    elif guessed or options.ignore_index is not None:
        what = "hits" if kind == "confidence" else "labels"
        scores = f"{described(predictions)} from {prefix + score!r}"
        remarks.insert(0, f"read {scores}, {what} from {prefix + truth!r}")
    return replace(predictions, note=", ".join(filter(None, remarks)))


def of_classes(
    arrays: Mapping[str, Any],
    score: str,
    truth: str | None,
    kind: Kind | None,
    options: ReadOptions,
) -> Predictions:
    """Take an array of scores and one of labels; without labels every row counts as class 0."""
    scores = score_array(arrays[score], score)
    if options.unlabelled and scores.ndim > 2:
        return of_all_positions(arrays, score, scores, truth, kind, options)
    if truth is None:
        return of_rows(arrays, score, scores, None, kind, options)

    labels = label_array(arrays[truth], truth)
    if options.unlabelled and some_missing(labels):
        return of_rows(arrays, score, scores, None, kind, options)
    if labels.shape == scores.shape and is_one_hot(labels):
        if kind == "probs" and (problem := distribution_problem(scores)):
            raise ValueError(f"{problem}: independent outputs are for `evaluate --multilabel`")
        labels = labels.argmax(1)
    if scores.ndim > 2:
        return of_positions(arrays, score, scores, as_tensor(labels, truth), kind, options)
    if labels.ndim > 1 and labels.shape == scores.shape and np.isin(labels, (0, 1)).all():
        raise ValueError(
            f"{truth} hold several labels per row, of independent outputs, which are for "
            "`toosure evaluate --multilabel`"
        )
    if labels.ndim > 1 or len(labels) != len(scores):  # their shapes do not match
        return FROM_ARRAYS[kind or "logits"](scores, as_tensor(labels, truth))
    return of_rows(arrays, score, scores, labels, kind, options)


def of_rows(
    arrays: Mapping[str, Any],
    score: str,
    scores: Tensor,
    labels: np.ndarray | None,
    kind: Kind | None,
    options: ReadOptions,
) -> Predictions:
    """Take scores (N,) or (N, C) and labels (N,), if there are some."""
    labelled = labels is not None
    labels = np.zeros(len(scores), dtype=np.int64) if labels is None else labels
    kept = kept_rows(labels, options.ignore_index if labelled else None)
    if not kept.all():
        scores = scores[torch.from_numpy(kept)]
        labels = labels[kept]

    # A run keeps the one logit z of a binary model as two, [0, z].
    one_output = kind == "logits" and scores.shape[1:] == (2,) and not scores[:, 0].any()
    scores = scores[:, 1] if one_output else scores
    binary = is_one_column(scores)
    check_log_probs(score, scores)
    if kind is None:
        kind = kind_of_one(score, scores.reshape(-1)) if binary else guess_kind(scores)

    classes = 2 if binary else scores.shape[1]
    class_names = options.classes or stored_names(arrays, classes, labels.dtype.kind not in "US")
    check_classes(options, classes)
    numbers = labels
    if labelled:
        numbers = class_numbers(
            labels, class_names, classes, binary, names_given=bool(options.classes)
        )
    predictions = FROM_ARRAYS[kind](scores, numbers)

    remarks = ["the first of two logits is 0 in every row: one logit of class 1"] * one_output
    if labelled and numbered_otherwise(class_names):
        remarks.append(f"labels {by_name_note(class_names)}")
    if labelled and not options.classes:
        remarks.append(one_based_note(predictions, labels, class_names))
    if options.ignore_index is not None:
        remarks.append(ignored_note(int((~kept).sum())))
    remarks.append(doubt_of_logits(score, predictions, options.kind))
    extras = {name: values[kept] for name, values in row_arrays(arrays, score, len(kept)).items()}
    note = ", ".join(filter(None, remarks))
    predictions = replace(predictions, names=class_names, extras=extras, note=note)
    return with_groups(predictions, options)


def score_array(values: Any, name: str) -> Tensor:
    """Return scores as a tensor of floats; raise if they are empty, or not numbers."""
    if values is None:
        raise ValueError(f"{name} holds Python objects, which are not read: save numbers")
    scores = as_tensor(values, name)
    if scores.dtype == torch.bool:
        raise ValueError(f"{name} are true or false: save logits or probabilities")
    if not scores.ndim:
        raise ValueError(f"{name} must be an array, a row for each example; got a single number")
    if not scores.numel():
        raise ValueError(f"{name} are empty: got shape {tuple(scores.shape)}")
    return scores if scores.is_floating_point() else scores.double()


def is_one_hot(labels: np.ndarray) -> bool:
    """Whether every row of labels (N, C) holds one 1 and else 0."""
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "biuf":
        return False
    return bool(np.isin(labels, (0, 1)).all() and (labels.sum(1) == 1).all())


def of_positions(
    arrays: Mapping[str, Any],
    score: str,
    scores: Tensor,
    labels: Tensor,
    kind: Kind | None,
    options: ReadOptions,
) -> Predictions:
    """Take scores of tokens (N, T, C) or pixels (N, C, H, W); each sequence or image is a group.

    Groups are of the N sequences or images.
    """
    ignored = -100 if options.ignore_index is None else options.ignore_index
    rows = flatten_positions(scores, labels, ignored)
    predictions = FROM_ARRAYS[kind or guess_kind(rows.outputs)](rows.outputs, rows.labels)
    check_classes(options, predictions.classes)

    groups = rows.groups
    group_name = rows.group_name
    if options.groups is not None:
        n = len(scores)
        of_all = groups_of(row_arrays(arrays, score, n), options.groups, n)
        groups = group_numbers(of_all[rows.groups], len(rows.groups))
        group_name = "group"
    groups = groups.unique(return_inverse=True)[1]
    if int(groups.max()) == 0:  # one sequence alone shows no spread
        return replace(predictions, names=options.classes)
    return replace(predictions, names=options.classes, groups=groups, group_name=group_name)


def label_array(values: Any, name: str) -> np.ndarray:
    """Return labels as an array of numbers, booleans or text, (N, 1) as (N,)."""
    if values is None:
        raise ValueError(
            f"{name} holds Python objects, which are not read: save names as text, "
            f"np.array({name}, dtype=str)"
        )
    array = flat(as_array(values, name))
    if not array.ndim:
        raise ValueError(f"{name} must be an array, one for each row; got a single value")
    return array.astype(str) if array.dtype.kind == "S" else array


def stored_names(
    arrays: Mapping[str, Any], classes: int, numbered: bool = False
) -> tuple[str, ...]:
    """Return the names of the classes in a file; none if it has none.

    Lists of names may repeat one, as ImageNet's do. Where labels are `numbered` they then name
    nothing; else they are refused.
    """
    for name in CLASS_NAMES:
        values = arrays.get(name)
        if isinstance(values, np.ndarray) and values.shape == (classes,):
            names = tuple(map(str, values.tolist()))
            repeated, times = Counter(names).most_common(1)[0]
            if times == 1:
                return names
            if not numbered:
                raise ValueError(f"{name} holds {repeated!r} twice: give each class its own name")
    return ()


def as_vector(values: Any) -> Any:
    """Return values (N, 1) as (N,), and any others as they are."""
    return values[:, 0] if getattr(values, "ndim", 1) == 2 and values.shape[1] == 1 else values


def hits(values: Any) -> Any:
    """Return the column of hits; text is read as true or false."""
    values = as_vector(values)
    is_text = isinstance(values, np.ndarray) and values.dtype.kind == "U"
    return parse_booleans(values) if is_text else values


def row_arrays(arrays: Mapping[str, Any], score: str, n: int) -> dict[str, np.ndarray]:
    """Return the other arrays of one value per row."""
    extras = {}
    for name, values in arrays.items():
        if name != score and getattr(values, "shape", None) in ((n,), (n, 1)):
            extras[name] = as_array(values, name).reshape(n)
    return extras


def left_out_note(arrays: Mapping[str, Any], *used: str | None) -> str:
    """Name the arrays that nothing was made of: weights, say."""
    unused = [name for name in arrays if name not in (*used, *CLASS_NAMES)]
    return f"left out {listed_columns(unused)}" if unused else ""


def described(predictions: Predictions) -> str:
    """Return the kind of the scores in words, for the note on what was read."""
    if predictions.kind == "confidence":
        return "confidences"
    word = "probabilities" if predictions.kind == "probs" else "logits"
    return (
        f"{word} of class 1" if predictions.binary else f"{word} of {predictions.classes} classes"
    )
