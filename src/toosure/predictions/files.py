"""Files of predictions as they lie: named arrays (.npz, .pt), named columns (.csv, .parquet)."""

import csv
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

ARRAYS = ("logits", "probs", "labels", "confidence", "correct")
TEXT = ("label", "correct")  # columns of a .csv that need not be numbers


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a reader throws at a damaged file into a ValueError of one line."""
    try:
        yield
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ValueError(f"cannot be read as {path.suffix} ({reason})") from error


def read_arrays(path: Path) -> dict[str, Any]:
    """Read the named arrays of a .npz, or the named tensors of a .pt, and nothing executable."""
    if path.suffix.lower() not in (".npz", ".pt"):
        raise ValueError("unknown kind of file; save .npz, .pt, .csv or .parquet")
    if not path.is_file():
        raise ValueError("no such file")
    return read_npz(path) if path.suffix.lower() == ".npz" else read_pt(path)


def read_npz(path: Path) -> dict[str, Any]:
    """Read the arrays of predictions in an .npz (others by name only); no pickled objects."""
    with reading(path), path.open("rb") as file:
        if file.read(2) not in (b"PK", b"\x93N"):  # np.load would call it a pickle to be trusted
            raise ValueError("not an archive of arrays; use np.savez")
        file.seek(0)
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise ValueError("one array without a name; use np.savez")
        with found as arrays:
            return {name: arrays[name] if name.endswith(ARRAYS) else None for name in arrays}


def read_pt(path: Path) -> dict[str, Any]:
    """Read a dict of tensors saved by torch; anything else is refused, not executed."""
    try:
        with reading(path):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except ValueError as error:
        if isinstance(error.__cause__, pickle.UnpicklingError):
            refusal = "refused: holds more than tensors, or is damaged; save a dict of tensors"
            raise ValueError(refusal) from error
        raise
    if not isinstance(found, dict):
        raise ValueError(f"must hold a dict of tensors; got {type(found).__name__}")
    return {str(name): value for name, value in found.items()}


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Read the named columns of a .csv or .parquet."""
    if not path.is_file():
        raise ValueError("no such file")
    columns = read_csv(path) if path.suffix.lower() == ".csv" else read_parquet(path)
    for name in columns:
        if not name or name.startswith("__index_level_"):
            raise ValueError("has a column without a name; an index? save with index=False")
    return columns


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """Read a .csv with a header; all columns but `label` and `correct` are numbers."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        names = [name.strip() for name in next(csv.reader(file), [])]
    if len(set(names)) < len(names):
        raise ValueError(f"has two columns of one name among {', '.join(names)}")
    text = [i for i, name in enumerate(names) if name in TEXT]
    numbers = [i for i, name in enumerate(names) if name not in TEXT and name]
    columns = dict.fromkeys(names, np.zeros(0))
    for places, dtype in ((numbers, np.float64), (text, np.str_)):
        values = csv_columns(path, places, dtype)
        columns |= {names[place]: values[:, i] for i, place in enumerate(places)}
    return columns


def csv_columns(path: Path, places: list[int], dtype: Any) -> np.ndarray:
    """Read the columns at `places`, below the header, as one array."""
    if not places:
        return np.zeros((0, 0))
    with (
        reading(path),
        warnings.catch_warnings(action="ignore", category=UserWarning),  # no rows: said later
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        next(csv.reader(file))
        rows = np.loadtxt(
            file, dtype, delimiter=",", quotechar='"', usecols=places, ndmin=2, comments=None
        )
    return rows.reshape(-1, len(places))


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of a .parquet file."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError("needs pyarrow: pip install 'toosure[parquet]'") from None
    with reading(path):
        table = parquet.read_table(path)
        columns = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if arrow.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if column.null_count:
                raise ValueError(
                    f"column {name!r} misses {column.null_count} of {len(column)} values"
                )
            columns[name] = column.to_numpy()
    return columns
