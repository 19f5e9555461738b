"""Read predictions from a file: choose its arrays or columns by name, and tell their kind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.inputs import SUM_TOLERANCE, as_logits, distribution_problem, probs_hint
from toosure.predictions.file_formats import read_arrays, read_table
from toosure.predictions.predictions import (
    Kind,
    Predictions,
    as_tensor,
    from_confidence,
    from_logits,
    from_probs,
)

# The array that each kind is named by, and what it is checked by together with its truth.
FROM_ARRAYS: dict[Kind, Callable[[Any, Any], Predictions]] = {
    "logits": from_logits,
    "probs": from_probs,
    "confidence": from_confidence,
}
LOG_PROBS_NAMES = ("log_probs", "logprobs")
INDEX_COLUMNS = ("id", "index", "unnamed: 0")  # of a table: row numbers would pass for logits
BOOLEANS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def read_predictions(
    path: str | Path, kind: Kind | None = None, split: str | None = None
) -> Predictions:
    """Read predictions and truth from a .npz, .pt, .csv or .parquet file.

    Array files hold `logits` or `probs` with `labels`, or `confidence` with `correct`; with
    `split="test"` the names are `test_logits`, `test_labels` and so on. Tables hold a column per
    class and `label` (a class name or its number), or the columns `confidence` and `correct`.
    A ValueError says in one line what is wrong with the file.
    """
    path = Path(path)
    try:
        if path.suffix.lower() in (".csv", ".parquet"):
            predictions = from_table(read_table(path), kind, split)
        else:
            predictions = from_arrays(read_arrays(path), kind, split)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return replace(predictions, source=path.name)


def from_arrays(arrays: Mapping[str, Any], kind: Kind | None, split: str | None) -> Predictions:
    """Take named arrays; without `kind` their names say it."""
    prefix = f"{split}_" if split else ""
    if kind is None:
        kinds = [name for name in FROM_ARRAYS if prefix + name in arrays]
        if len(kinds) > 1:
            raise ValueError(f"holds {' and '.join(kinds)}: choose one with --kind")
        kind = kinds[0] if kinds else "logits"

    truth = truth_of(kind)
    for name in (prefix + kind, prefix + truth):
        if name not in arrays:
            names = ", ".join(sorted(arrays)) or "nothing"
            hint = log_probs_hint(arrays, prefix) or ("" if split else split_hint(arrays))
            raise ValueError(f"no array {name!r}; it holds {names}{hint}")
    return FROM_ARRAYS[kind](arrays[prefix + kind], arrays[prefix + truth])


def truth_of(kind: Kind) -> str:
    """Return the name of the array that says what was true."""
    return "correct" if kind == "confidence" else "labels"


def split_hint(arrays: Mapping[str, Any]) -> str:
    """Name the splits of a file read without one: those that have predictions and truth."""
    splits = {
        name.removesuffix(f"_{kind}")
        for kind in FROM_ARRAYS
        for name in arrays
        if name.endswith(f"_{kind}") and f"{name.removesuffix(kind)}{truth_of(kind)}" in arrays
    }
    return f": choose --split {' or '.join(sorted(splits))}" if splits else ""


def log_probs_hint(arrays: Mapping[str, Any], prefix: str) -> str:
    """Say that log-probabilities are logits, where an array of such a name holds them."""
    for name in LOG_PROBS_NAMES:
        values = arrays.get(prefix + name)
        if values is None:
            continue
        scores = as_tensor(values, prefix + name)
        if scores.ndim == 2 and distribution_problem(scores.double().exp()) is None:
            return f": {prefix + name} are logits too; save them as {prefix}logits"
    return ""


def from_table(
    columns: Mapping[str, np.ndarray], kind: Kind | None, split: str | None
) -> Predictions:
    """Take a table: a column per class and `label`, or `confidence` and `correct`."""
    if split:
        raise ValueError("--split chooses arrays of .npz and .pt; a table has none")
    if kind in (None, "confidence") and {"confidence", "correct"} <= columns.keys():
        return from_confidence(columns["confidence"], parse_booleans(columns["correct"]))

    needed = "correct" if kind == "confidence" else "label"
    if needed not in columns:
        raise ValueError(f"no column {needed!r}; it holds {', '.join(columns) or 'nothing'}")
    names = tuple(name for name in columns if name != "label")
    for name in names:
        if name.lower() in INDEX_COLUMNS:
            raise ValueError(
                f"column {name!r} is no class: drop it, or give the class another name"
            )
    if not names:
        raise ValueError("no column of a class; it holds only 'label'")

    scores = torch.stack(
        [as_tensor(columns[name], f"column {name!r}").double() for name in names], 1
    )
    kind = kind or guess_kind(as_logits(scores))
    predictions = FROM_ARRAYS[kind](scores, class_numbers(columns["label"], names))
    return replace(predictions, names=names)


def guess_kind(scores: Tensor) -> Kind:
    """Tell probabilities (every row sums to 1) from logits (some are negative), or ask."""
    if (problem := distribution_problem(scores)) is None:
        return "probs"
    if (scores < 0).any():
        return "logits"

    rule = f"probabilities sum to 1 to within {SUM_TOLERANCE:g}"
    hint = probs_hint(scores) or "; if these are logits, say --kind logits"
    raise ValueError(f"{problem}, and {rule}{hint}")


def parse_booleans(values: np.ndarray) -> np.ndarray:
    """Read true and false, 1 and 0, as a .csv or .parquet column spells them."""
    spellings, inverse = np.unique(values.astype(str), return_inverse=True)
    for spelling in spellings.tolist():
        if spelling.strip().lower() not in BOOLEANS:
            raise ValueError(f"correct must be true or false (1 or 0); got {spelling!r}")
    truths = [BOOLEANS[spelling.strip().lower()] for spelling in spellings]
    return np.array(truths, dtype=bool)[inverse]


def class_numbers(values: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Number the labels of a table: by the class columns' names, or as they are if all integers."""
    labels, inverse = np.unique(np.char.strip(values.astype(str)), return_inverse=True)
    number = {name: k for k, name in enumerate(names)}
    if set(labels) <= number.keys():
        return np.array([number[label] for label in labels], dtype=np.int64)[inverse]

    for label in labels.tolist():
        if not label.lstrip("-").isdecimal() or len(label) > 18:
            expected = f"a class column's name or an integer in [0, {len(names)})"
            raise ValueError(f"label must be {expected}; got {label!r}")
    return np.array([int(label) for label in labels], dtype=np.int64)[inverse]
