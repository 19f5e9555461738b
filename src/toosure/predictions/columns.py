"""Columns of a table: which are numbers, which are damaged, and several as one array."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from toosure.predictions.csv_files import is_number
from toosure.predictions.nested_columns import not_numbers

Columns = Mapping[str, np.ndarray]
OR_NAME = ", or name the columns of the scores with --columns"  # where they were guessed


def is_numbers(values: np.ndarray) -> bool:
    """Whether a column holds numbers, and no booleans."""
    return values.dtype.kind in "iuf"


def is_score(values: np.ndarray) -> bool:
    """Whether a column of numbers may hold scores rather than predicted classes."""
    return is_numbers(values) and not bool((values == np.rint(values)).all())


def check_damaged(values: np.ndarray, name: str) -> None:
    """Refuse a column that holds numbers except for some cells."""
    if values.dtype.kind != "U":
        return
    numeric = [is_number(cell) for cell in values.tolist()]
    if len(numeric) / 2 < sum(numeric) < len(numeric):
        if missing := missing_values(values == "", name):
            raise ValueError(f"{missing}{OR_NAME}")
        row = numeric.index(False)
        raise ValueError(
            f"column {name!r} holds {str(values[row])!r} in row {row} (line {row + 2} of a .csv): "
            "numbers are needed; correct or drop that row, or name the columns with --columns"
        )


def check_complete(
    columns: Columns, names: Sequence[str], kept: np.ndarray, remedy: str = ""
) -> None:
    """Refuse columns of numbers that miss a value, NaN, in the rows that are kept."""
    for name in names:
        values = columns[name]
        if values.dtype.kind != "f" or values.ndim > 1:
            continue
        if missing := missing_values(np.isnan(values) & kept, name):
            raise ValueError(f"{missing}{remedy}")


def missing_values(missing: np.ndarray, name: str) -> str:
    """Return the error for a column that misses values in some rows; empty if in none.

    >>> missing_values(np.array([False, True, False]), "p")
    "column 'p' misses 1 of 3 values, the first in row 1 (line 3 of a .csv): drop such rows"
    """
    rows = np.flatnonzero(missing)
    if not len(rows):
        return ""
    return (
        f"column {name!r} misses {len(rows):,} of {len(missing):,} values, the first in row "
        f"{rows[0]} (line {rows[0] + 2} of a .csv): drop such rows"
    )


def number_column(columns: Columns, name: str) -> np.ndarray:
    """Return a column as float64; raise on the first cell that is not a number."""
    values = columns[name]
    if values.dtype.kind in "biuf":
        return values if values.dtype.kind == "f" else values.astype(np.float64)

    if values.dtype.kind == "U" and values.ndim == 1:
        if missing := missing_values(values == "", name):
            raise ValueError(missing)
        for row, cell in enumerate(values.tolist()):
            if not is_number(cell):
                remedy = "correct or drop that row"
                if cell.endswith("%") and is_number(cell.rstrip("% ")):
                    remedy = f"write {float(cell.rstrip('% ')) / 100:g} for it"
                raise ValueError(
                    f"column {name!r} holds {cell!r} in row {row} (line {row + 2} of a .csv): "
                    f"numbers are needed; {remedy}"
                )
        return values.astype(np.float64)

    raise ValueError(not_numbers(values, name))


def stacked(columns: Columns, names: Sequence[str]) -> Tensor:
    """Return columns side by side, (N, C) float64; one column of lists is such an array itself."""
    parts = [number_column(columns, name) for name in names]
    if len(parts) == 1 and parts[0].ndim == 2:
        if not parts[0].size:
            raise ValueError(f"column {names[0]!r} holds empty lists: a number for each class")
        return torch.from_numpy(np.ascontiguousarray(parts[0], dtype=np.float64))
    for name, part in zip(names, parts, strict=True):
        if part.ndim > 1 and len(parts) > 1:
            raise ValueError(f"column {name!r} holds lists, and there are others: choose one")
        if part.ndim > 1:
            raise ValueError(f"column {name!r} holds lists of lists: one list of numbers per row")
    return torch.from_numpy(np.stack(parts, 1).astype(np.float64, copy=False))


def other_columns(
    columns: Columns, chosen: Sequence[str], kept: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the columns that are not scores, of the rows that are kept."""
    return {
        name: values[kept]
        for name, values in columns.items()
        if name not in chosen and values.ndim == 1 and len(values) == len(kept)
    }
