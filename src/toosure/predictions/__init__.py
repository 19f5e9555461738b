"""What a classifier said and what was true: three kinds, each checked on the way in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import as_confidence, as_labels, as_logits, at_least_float32, not_a_distribution
from toosure.predictions.files import read_arrays, read_table

Kind = Literal["logits", "probs", "confidence"]
NO_CLASS = ("id", "index", "unnamed: 0")  # row numbers would pass for logits


@dataclass(frozen=True)
class Predictions:
    """What a classifier said and what was true; `logits` are log p where probabilities came."""

    kind: Kind
    confidence: Tensor  # (N,) of the predicted class, in the precision that came
    correct: Tensor  # (N,) bool
    logits: Tensor | None = None  # (N, C); None where only confidences came
    labels: Tensor | None = None  # (N,) int64
    names: tuple[str, ...] = ()  # of the C classes
    source: str = ""
    probs: Tensor | None = None  # (N, C) as they came, where probabilities came

    @property
    def n(self) -> int:
        return len(self.confidence)

    @property
    def classes(self) -> int | None:
        return None if self.logits is None else self.logits.shape[1]


def from_logits(logits: Any, labels: Any) -> Predictions:
    """Take `logits (N, C)` and integer `labels (N,)`.

    >>> from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 0]).correct.tolist()
    [True, False]
    """
    logits = as_logits(as_tensor(logits, "logits"))
    labels = as_labels(as_tensor(labels, "labels"), *logits.shape)
    if not_a_distribution(logits) is None:
        raise ValueError(
            "logits are probabilities (every row sums to 1): save or read them as probs"
        )
    confidence, correct = top_label(logits, labels)
    return Predictions("logits", confidence, correct, logits, labels)


def from_probs(probs: Any, labels: Any) -> Predictions:
    """Take `probs (N, C)`, rows that sum to 1, and integer `labels (N,)`.

    >>> from_probs([[0.9, 0.1], [0.0, 1.0]], [0, 1]).confidence.tolist()
    [0.9, 1.0]
    """
    probs = as_tensor(probs, "probs")
    if probs.ndim == 1:
        raise ValueError("probs must have shape (N, C); for two classes stack (1 - p, p)")
    probs = at_least_float32(as_logits(probs))
    labels = as_labels(as_tensor(labels, "labels"), *probs.shape)
    if (wrong := not_a_distribution(probs)) is not None:
        raise ValueError(f"probs must be rows of numbers in [0, 1] that sum to 1; {wrong}")
    confidence, predicted = probs.max(1)
    correct, logits = predicted == labels, probs.double().log()
    probs = probs.clamp(max=1)
    return Predictions("probs", confidence.clamp(max=1), correct, logits, labels, probs=probs)


def from_confidence(confidence: Any, correct: Any) -> Predictions:
    """Take the `confidence (N,)` of each prediction and whether it was `correct (N,)`.

    >>> from_confidence([0.9, 0.6], [True, False]).n
    2
    """
    pair = as_confidence(as_tensor(confidence, "confidence"), as_tensor(correct, "correct"))
    return Predictions("confidence", *pair)


def as_tensor(values: Any, name: str) -> Tensor:
    """Turn an array of numbers into a tensor on the CPU, unsigned integers into int64."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise ValueError(f"{name} must be dense; got {values.layout}: call .to_dense()")
        return values.detach().cpu()
    values = np.asarray(values)
    if values.dtype.kind not in "bifu":
        raise ValueError(f"{name} must be numbers; got {values.dtype}")
    if values.dtype.kind == "u":
        values = values.astype(np.int64)
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))))


TAKES = {"logits": from_logits, "probs": from_probs, "confidence": from_confidence}


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
            found = from_table(read_table(path), kind, split)
        else:
            found = from_arrays(read_arrays(path), kind, split)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return replace(found, source=path.name)


def from_arrays(arrays: Mapping[str, Any], kind: Kind | None, split: str | None) -> Predictions:
    """Choose the arrays by name: their names say the kind."""
    prefix = f"{split}_" if split else ""
    present = [name for name in TAKES if prefix + name in arrays]
    holds = ", ".join(sorted(arrays)) or "nothing"
    if kind is None and len(present) > 1:
        raise ValueError(f"holds {' and '.join(present)}: choose one with --kind")
    wanted = kind or (present[0] if present else "logits")
    truth = "correct" if wanted == "confidence" else "labels"
    for name in (wanted, truth):
        if prefix + name not in arrays:
            raise ValueError(f"no array {prefix + name!r}; it holds {holds}{hint(arrays, split)}")
    return TAKES[wanted](arrays[prefix + wanted], arrays[prefix + truth])


def hint(arrays: Mapping[str, Any], split: str | None) -> str:
    """Name the splits of a file that was read without one."""
    ends = tuple(f"_{name}" for name in TAKES)
    splits = sorted({name.rsplit("_", 1)[0] for name in arrays if name.endswith(ends)})
    return f": choose --split {' or '.join(splits)}" if splits and not split else ""


def from_table(
    columns: Mapping[str, np.ndarray], kind: Kind | None, split: str | None
) -> Predictions:
    """Take a table: a column per class and `label`, or `confidence` and `correct`."""
    if split:
        raise ValueError("--split chooses arrays of .npz and .pt; a table has none")
    if kind in (None, "confidence") and {"confidence", "correct"} <= columns.keys():
        return from_confidence(columns["confidence"], truths(columns["correct"]))
    needed = "correct" if kind == "confidence" else "label"
    if needed not in columns:
        raise ValueError(f"no column {needed!r}; it holds {', '.join(columns) or 'nothing'}")
    names = tuple(name for name in columns if name != "label")
    for name in names:
        if name.lower() in NO_CLASS:
            raise ValueError(
                f"column {name!r} is no class: drop it, or give the class another name"
            )
    if not names:
        raise ValueError("no column of a class; it holds only 'label'")
    scores = torch.stack(
        [as_tensor(columns[name], f"column {name!r}").double() for name in names], 1
    )
    kind = kind or kind_of(as_logits(scores))
    return replace(TAKES[kind](scores, codes(columns["label"], names)), names=names)


def kind_of(scores: Tensor) -> Kind:
    """Tell probabilities (every row sums to 1) from logits (some are negative), or ask."""
    if (wrong := not_a_distribution(scores)) is None:
        return "probs"
    if (scores < 0).any():
        return "logits"
    raise ValueError(f"{wrong}, so these are not probabilities; for logits, say --kind logits")


def truths(values: np.ndarray) -> np.ndarray:
    """Read true and false, 1 and 0, as a .csv or .parquet column spells them."""
    spelled = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    found, inverse = np.unique(values.astype(str), return_inverse=True)
    for value in found.tolist():
        if value.strip().lower() not in spelled:
            raise ValueError(f"correct must be true or false (1 or 0); got {value!r}")
    return np.array([spelled[value.strip().lower()] for value in found], dtype=bool)[inverse]


def codes(values: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Number the labels of a table: by the class columns' names, or as they are if all integers."""
    found, inverse = np.unique(np.char.strip(values.astype(str)), return_inverse=True)
    place = {name: code for code, name in enumerate(names)}
    if set(found) <= place.keys():
        return np.array([place[value] for value in found], dtype=np.int64)[inverse]
    for value in found.tolist():
        if not value.lstrip("-").isdecimal() or len(value) > 18:
            expected = f"a class column's name or an integer in [0, {len(names)})"
            raise ValueError(f"label must be {expected}; got {value!r}")
    return np.array([int(value) for value in found], dtype=np.int64)[inverse]
