"""Open files of predictions: arrays (.npz, .npy, .pt) and tables (.csv, .jsonl, .parquet)."""

import json
import math
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from toosure.metrics.conversion import is_missing
from toosure.predictions.csv_files import read_csv
from toosure.predictions.nested_columns import class_columns, stacked_lists

TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".parquet")
ARRAYS = (".npz", ".npy", ".pt", ".pth")
ONE_PER_LINE = 'write one per line, as {"p_cat": 0.9, "p_dog": 0.1, "label": "cat"}'
KINDS = ".npz, .npy, .pt, .csv, .jsonl or .parquet"


@contextmanager
def errors_in_one_line(path: Path) -> Iterator[None]:
    """Turn whatever a library raises about a damaged file into a ValueError of one line."""
    try:
        yield
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        if isinstance(error, UnicodeDecodeError):
            reason = f"no text in UTF-8 from byte {error.start} on: save it as UTF-8"
        raise ValueError(f"cannot be read as {path.suffix} ({reason})") from error


def check_file(path: Path) -> None:
    """Refuse a path that leads to no file, or to an empty one."""
    if not path.exists():
        raise ValueError("no such file" if path.suffix else "no such file or run folder")
    if path.is_dir():
        of_run = (path / "predictions.npz").is_file()
        remedy = f": give {path / 'predictions.npz'} and a --split, as test" if of_run else ""
        raise ValueError(f"is a folder, and a file is needed{remedy}")
    if not path.is_file():
        raise ValueError("is a pipe or a device: save what it gives to a file first")
    if not path.stat().st_size:
        raise ValueError(f"cannot be read as {path.suffix} (the file is empty)")


def read_arrays(path: Path) -> dict[str, Any]:
    """Read named arrays of a .npz, named tensors of a .pt, or a .npy, named by its file.

    Nothing in them is executed.
    """
    check_file(path)
    suffix = path.suffix.lower()
    if suffix not in ARRAYS:
        raise ValueError(f"unknown kind of file; save {KINDS}")
    if suffix == ".npy":
        return {path.stem: read_npy(path)}
    return read_npz(path) if suffix == ".npz" else read_pt(path)


def read_npy(path: Path) -> np.ndarray:
    """Read the one array of a .npy; no pickled objects."""
    with errors_in_one_line(path), path.open("rb") as file:
        if file.read(2) != b"\x93N":
            raise ValueError("not a single array; use np.save")
        file.seek(0)
        array = np.load(file, allow_pickle=False)
        assert isinstance(array, np.ndarray)
        return array


@contextmanager
def opened_npz(path: Path) -> Iterator[Any]:
    """Open an .npz; refuse other files here, because np.load would suggest to trust them."""
    with errors_in_one_line(path), path.open("rb") as file:
        start = file.read(2)
        if start not in (b"PK", b"\x93N"):
            raise ValueError("not an archive of arrays; use np.savez")
        if start == b"PK" and not zipfile.is_zipfile(file):
            raise ValueError("cut short or damaged: write it again")

        file.seek(0)
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("one array without a name; use np.savez")
        with archive:
            yield archive


def read_npz(path: Path) -> dict[str, Any]:
    """Read the arrays of an .npz; those that hold pickled objects are there by name only."""
    with opened_npz(path) as archive:
        if any(name.endswith("/data.pkl") for name in archive):
            raise ValueError("written by torch.save: call it .pt")
        return {name: archived(archive, name) for name in archive}


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz, without reading them."""
    try:
        check_file(path)
        with opened_npz(path) as archive:
            return list(archive.files)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def archived(archive: Any, name: str) -> np.ndarray | None:
    """Read one array; None if that would execute a pickle."""
    try:
        array: np.ndarray = archive[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        return None
    return array


def read_pt(path: Path) -> dict[str, Any]:
    """Read a dict of tensors saved by torch; anything else is refused, not executed."""
    with (
        errors_in_one_line(path),
        warnings.catch_warnings(action="ignore"),  # about a strange file, before it is refused
        path.open("rb") as file,
    ):
        check_archive(file)
        file.seek(0)
        try:
            tensors = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            refusal = "refused: holds more than tensors, or is damaged; save a dict of tensors"
            raise ValueError(refusal) from error
        except Exception as error:  # of many kinds, some of which advise to trust the file
            raise ValueError("damaged, or not written by torch.save") from error

    if not isinstance(tensors, dict):
        raise ValueError(
            f"must hold a dict of tensors; got {type(tensors).__name__}: save "
            '{"logits": logits, "labels": labels}'
        )
    return {str(name): as_stored(value) for name, value in tensors.items()}


def check_archive(file: BinaryIO) -> None:
    """Refuse an archive of another library, or with wrong checksums.

    torch.load does not look at these, and would return other numbers than were saved.
    """
    if not zipfile.is_zipfile(file):  # the older format of torch.save
        return
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            has_checksums = any(part.CRC for part in archive.infolist())  # torch can leave them out
            is_damaged = has_checksums and archive.testzip() is not None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise ValueError("damaged: write it again") from error

    if any(name.endswith(".npy") for name in names):
        raise ValueError("written by np.savez: call it .npz")
    if is_damaged:
        raise ValueError("damaged, other bytes than were written: write it again")


def as_stored(value: Any) -> Any:
    """Return a list as an array, where its rows are of one length."""
    if not isinstance(value, list | tuple):
        return value
    try:
        return np.array(value)
    except ValueError:
        return value


def read_table(path: Path, as_text: Callable[[list[str]], list[str]]) -> dict[str, np.ndarray]:
    """Read the named columns of a table; `as_text` tells which of a .csv stay as spelled."""
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return read_parquet(path)
    if suffix in (".jsonl", ".ndjson"):
        return read_jsonl(path)
    with errors_in_one_line(path):
        return read_csv(path, as_text)


def read_jsonl(path: Path) -> dict[str, np.ndarray]:
    """Read one JSON object per line; a list of numbers in each becomes an array (N, C)."""
    rows: list[dict[str, Any]] = []
    with errors_in_one_line(path), path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = object_in(line, number)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is not an object in braces: {ONE_PER_LINE}")
            if rows and row.keys() != rows[0].keys():
                differ = ", ".join(sorted(row.keys() ^ rows[0].keys()))
                raise ValueError(f"line {number} has other keys than the first line: {differ}")
            rows.append(row)

    columns: dict[str, np.ndarray] = {}
    for name in rows[0] if rows else ():
        columns |= columns_of([row[name] for row in rows], name)
    return columns


def object_in(line: str, number: int) -> Any:
    """Read one line of JSON, or raise with the number of the line."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        where = f"line {number}, column {error.colno}"
        what = error.msg.removesuffix(" at").removesuffix(" starting")
        raise ValueError(f"{where} is not a whole object ({what}): {ONE_PER_LINE}") from error
    except RecursionError as error:
        raise ValueError(f"line {number} is nested too deep: {ONE_PER_LINE}") from error
    except ValueError as error:  # Python's limit on the digits of an integer
        raise ValueError(f"line {number} holds a number of too many digits") from error


def column_of(values: Sequence[Any], name: str) -> np.ndarray:
    """Turn the values of a column into an array: numbers (N,), lists of them (N, C), or text.

    What begins as text is text: of a remark nothing is made, whatever else it holds. So is a column
    that misses values, but for fractions: they become empty text, as in a .csv, of fractions NaN,
    and are refused where it is needed.
    """
    missing = list(map(is_missing, values))
    if any(missing):
        pairs = list(zip(values, missing, strict=True))
        there = [value for value, gone in pairs if not gone]
        if there and all(isinstance(value, float | np.floating) for value in there):
            return np.array([math.nan if gone else value for value, gone in pairs])
        return np.array(["" if gone else str(value) for value, gone in pairs])

    nested = [isinstance(value, list | tuple | dict | np.ndarray) for value in values]
    if any(nested) and not all(nested) and not isinstance(values[0], str):
        row = nested.index(not nested[0])
        first, other = (type(values[k]).__name__ for k in (0, row))
        raise ValueError(f"column {name!r} holds {other} in row {row}, and {first} in row 0")
    if any(isinstance(value, list | tuple | np.ndarray) for value in values[:1]):
        return stacked_lists(values, name)

    kinds = {bool if isinstance(value, (bool, np.bool_)) else type(value) for value in values}
    if str in kinds or (bool in kinds and len(kinds) > 1):
        return np.array([str(value) for value in values])
    return np.asarray(values)


def columns_of(values: Sequence[Any], name: str) -> dict[str, np.ndarray]:
    """Return a column as an array; of scores that are objects, `{"cat": 0.9}`, one per class."""
    classes = class_columns(values, name)
    return {name: column_of(values, name)} if classes is None else classes


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of a .parquet file."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError("needs pyarrow: pip install 'toosure[parquet]'") from None

    with errors_in_one_line(path):
        table = parquet.read_table(path)
        columns: dict[str, np.ndarray] = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if arrow.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if column.null_count:
                columns[name] = column_of(column.to_pylist(), name)
                continue
            values = column.to_numpy()
            columns |= columns_of(values, name) if values.dtype == object else {name: values}
    return columns
