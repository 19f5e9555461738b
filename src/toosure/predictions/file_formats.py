"""Open files of predictions: named arrays (.npz, .pt) and tables of columns (.csv, .parquet)."""

import csv
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

ARRAY_NAMES = ("logits", "probs", "labels", "confidence", "correct")  # behind a split's prefix
TEXT_COLUMNS = ("label", "correct")  # of a .csv, that need not be numbers


@contextmanager
def errors_in_one_line(path: Path) -> Iterator[None]:
    """Turn whatever a library raises about a damaged file into a ValueError of one line."""
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
    with errors_in_one_line(path), path.open("rb") as file:
        # Refused here, because np.load would call the file a pickle and ask to trust it.
        if file.read(2) not in (b"PK", b"\x93N"):
            raise ValueError("not an archive of arrays; use np.savez")

        file.seek(0)
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("one array without a name; use np.savez")
        with archive:
            return {name: archive[name] if name.endswith(ARRAY_NAMES) else None for name in archive}


def read_pt(path: Path) -> dict[str, Any]:
    """Read a dict of tensors saved by torch; anything else is refused, not executed."""
    try:
        with errors_in_one_line(path):
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except ValueError as error:
        if isinstance(error.__cause__, pickle.UnpicklingError):
            refusal = "refused: holds more than tensors, or is damaged; save a dict of tensors"
            raise ValueError(refusal) from error
        raise

    if not isinstance(tensors, dict):
        raise ValueError(f"must hold a dict of tensors; got {type(tensors).__name__}")
    return {str(name): value for name, value in tensors.items()}


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
    with errors_in_one_line(path), path.open(encoding="utf-8-sig", newline="") as file:
        names = [name.strip() for name in next(csv.reader(file), [])]
    if len(set(names)) < len(names):
        raise ValueError(f"has two columns of one name among {', '.join(names)}")

    # Numbers and text are two passes of the reader, one dtype each.
    text = [i for i, name in enumerate(names) if name in TEXT_COLUMNS]
    numbers = [i for i, name in enumerate(names) if name not in TEXT_COLUMNS and name]
    columns = dict.fromkeys(names, np.zeros(0))
    for positions, dtype in ((numbers, np.float64), (text, np.str_)):
        values = read_csv_columns(path, positions, dtype)
        columns |= {names[position]: values[:, i] for i, position in enumerate(positions)}
    return columns


def read_csv_columns(
    path: Path, positions: list[int], dtype: type[np.float64] | type[np.str_]
) -> np.ndarray:
    """Read the columns at `positions`, below the header, as one array."""
    if not positions:
        return np.zeros((0, 0))
    with (
        errors_in_one_line(path),
        warnings.catch_warnings(action="ignore", category=UserWarning),  # no rows: refused later
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        next(csv.reader(file))  # the header
        rows = np.loadtxt(
            file, dtype, delimiter=",", quotechar='"', usecols=positions, ndmin=2, comments=None
        )
    return rows.reshape(-1, len(positions))


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of a .parquet file."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError("needs pyarrow: pip install 'toosure[parquet]'") from None

    with errors_in_one_line(path):
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
