"""Read predictions from a file or a data frame: find scores and labels by name, tell their kind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from toosure.predictions.arrays import from_arrays
from toosure.predictions.file_formats import TABLES, columns_of, read_arrays, read_table
from toosure.predictions.options import ReadOptions, as_names
from toosure.predictions.predictions import Kind, Predictions
from toosure.predictions.tables import from_table, text_columns
from toosure.predictions.usual_names import LABELS, SCORES, UNTOLD_SCORES, WEAK_LABELS


def read_predictions(
    path: str | Path,
    kind: Kind | None = None,
    split: str | None = None,
    *,
    labels: str | Path | None = None,
    label: str | None = None,
    columns: str | Sequence[str] = (),
    classes: Sequence[str] = (),
    ignore_index: int | None = None,
    unlabelled: bool = False,
    groups: str | None = None,
) -> Predictions:
    """Read predictions and truth from a .npz, .npy, .pt, .csv, .jsonl or .parquet file.

    Array files hold scores and labels under usual names (`logits` or `probs` with `labels`,
    `y_score` with `y_true`), or `confidence` with `correct`; with `split="test"` the names are
    `test_logits`, `test_labels` and so on. A .npy holds scores, and `labels` names the .npy of the
    labels. Tables hold a column per class, or one probability of class 1, and a column of labels.

    Where names do not tell, `label` names the column of the labels, `columns` those of the scores,
    `classes` the classes in the order of the columns. Rows labelled `ignore_index` are left out;
    with `unlabelled`, every row of a file without labels, or with some missing, counts as class 0,
    and so do all tokens or pixels of any file. `groups` names the column or array that says which
    rows come together (a patient, a sequence): these are resampled whole.
    `note` of the result says what was guessed. Errors are ValueErrors of one line.
    """
    path = Path(path)
    try:
        options = ReadOptions(
            kind, split, label, as_names(columns), tuple(classes), ignore_index, unlabelled, groups
        )

        if path.suffix.lower() in TABLES:
            if labels is not None:
                raise ValueError("is a table: labels are one of its columns, not a second file")
            table = read_table(path, partial(text_columns, options=options))
            predictions = from_table(table, options)
        elif labels is not None or path.suffix.lower() == ".npy":
            predictions = from_pair(path, labels, options)
        else:
            predictions = from_arrays(read_arrays(path), options)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return replace(predictions, source=path.name)


def from_pair(path: Path, labels: str | Path | None, options: ReadOptions) -> Predictions:
    """Take scores from one file and labels from another, each with a single array."""
    if labels is None and options.unlabelled:
        return from_arrays({pair_name(path): single_array(path)}, options)
    if labels is None:
        raise ValueError(
            "is one array: give the labels too, as a second .npy or with --labels FILE.npy"
        )
    scores = single_array(path)
    try:
        truth = single_array(Path(labels))
    except ValueError as error:
        raise ValueError(f"its labels {Path(labels).name}: {error}") from error
    if len(scores) != len(truth):
        raise ValueError(f"has {len(scores):,} rows and {Path(labels).name} has {len(truth):,}")

    name = pair_name(path)
    pair = {name: scores, "labels": truth}
    predictions = from_arrays(pair, replace(options, split=None, label=None, columns=()))
    note = predictions.note
    if not note.startswith("read "):  # nothing was guessed
        text = f"read {predictions.kind} from {name!r}, labels from 'labels'"
        note = ", ".join(filter(None, (text, note)))
    note = note.replace(f"{name!r}", f"{path.name!r}").replace("'labels'", f"{Path(labels).name!r}")
    return replace(predictions, note=note)


def pair_name(path: Path) -> str:
    """Return what a .npy holds, by the end of its name; scores if that is not a usual one."""
    known = [name for kind in SCORES.values() for name in kind]
    return next((name for name in known if path.stem.lower().endswith(name)), "scores")


def single_array(path: Path) -> Any:
    """Return the one array of a file."""
    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise ValueError(f"holds {len(arrays)} arrays; one is needed beside another file")
    return next(iter(arrays.values()))


def npy_pair(first: Path, second: Path) -> tuple[Path, Path]:
    """Return scores and labels of two .npy files, by their names or else their contents.

    Raise ValueError if that cannot be told.
    """
    truth = [looks_like_labels(path) for path in (first, second)]
    if truth == [False, True]:
        return first, second
    if truth == [True, False]:
        return second, first
    raise ValueError(
        f"{first.name} and {second.name}: which holds the labels cannot be told; say "
        f"{first.name} --labels {second.name}"
    )


def looks_like_labels(path: Path) -> bool:
    """Whether a .npy is named as labels, or else holds a column of whole numbers or names."""
    stem = path.stem.lower()
    if any(stem.endswith(name) for name in (*LABELS, *WEAK_LABELS[1:])) or stem == "y":
        return True
    usual = (*UNTOLD_SCORES, *(name for kind in SCORES.values() for name in kind))
    if any(stem.endswith(name) for name in usual):
        return False

    try:
        array = np.asarray(single_array(path))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] > 1):
        return False
    return array.dtype.kind != "f" or bool((array == np.rint(array)).all())


def is_frame(values: object) -> TypeGuard[Any]:
    """Return whether values are a data frame, or a dict of columns.

    >>> is_frame({"y": [1]}), is_frame([[0.5, 0.5]])
    (True, False)
    """
    if isinstance(values, Mapping):
        return True
    return hasattr(values, "columns") and hasattr(values, "__getitem__")


def from_frame(
    frame: object,
    label: str | None = None,
    columns: str | Sequence[str] = (),
    *,
    kind: Kind | None = None,
    classes: Sequence[str] = (),
    ignore_index: int | None = None,
    groups: str | None = None,
) -> Predictions:
    """Take a pandas or polars frame, or a dict of columns, as `read_predictions` takes a table.

    >>> from_frame({"y": [1, 0], "p_cat": [0.9, 0.4], "p_dog": [0.1, 0.6]}, label="y").names
    ('cat', 'dog')
    """
    if not is_frame(frame):
        raise ValueError(
            f"predictions must be made by read_predictions, from_logits, from_probs or "
            f"from_confidence, or be a data frame; got {type(frame).__name__}"
        )

    table: dict[str, np.ndarray] = {}
    for name in frame if isinstance(frame, Mapping) else frame.columns:
        values = np.asarray(frame[name])
        is_mixed = values.dtype == object
        table |= columns_of(values.tolist(), str(name)) if is_mixed else {str(name): values}

    names = as_names(columns)
    options = ReadOptions(kind, None, label, names, tuple(classes), ignore_index, groups=groups)
    return replace(from_table(table, options), source="data frame")
