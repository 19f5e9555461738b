"""Columns of whatever rows hold, as Parquet: each column has one type there."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow import Array


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table; what is no number in a column of numbers goes to a column NAME/text."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            "writing .parquet needs pyarrow: pip install 'toosure[parquet]'"
        ) from error

    arrays: dict[str, Array] = {}
    for name, values in columns.items():
        numbers, texts = separated(values)
        arrays[name] = texts if numbers is None else numbers
        if numbers is not None and texts is not None:
            arrays[free_name(f"{name}/text", {**columns, **arrays})] = texts
    parquet.write_table(pyarrow.table(arrays), path)


def separated(values: list[Any]) -> tuple["Array | None", "Array | None"]:
    """Return the numbers of a column and its texts, null where it is the other; None for neither.

    Lists and objects are texts, as JSON. Numbers of several types, or too large for 64 bits, are
    floats. An empty column is one of numbers.
    """
    import pyarrow

    others = [value for value in values if not isinstance(value, bool | int | float | None)]
    texts = pyarrow.array([as_text(value) for value in values]) if others else None
    if others and all(isinstance(value, str | list | dict | None) for value in values):
        return None, texts

    numbers = [value if isinstance(value, bool | int | float) else None for value in values]
    types = {type(value) for value in numbers} - {type(None)}
    if types <= {bool} or (types == {int} and all(abs(n) < 2**63 for n in numbers if n)):
        return pyarrow.array(numbers), texts
    floats = [None if n is None else as_float(n) for n in numbers]
    return pyarrow.array(floats, pyarrow.float64()), texts


def as_text(value: object) -> str | None:
    """Return what is no number as text."""
    if value is None or isinstance(value, bool | int | float):
        return None
    return value if isinstance(value, str) else json.dumps(value)


def as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return float("inf") if value > 0 else float("-inf")


def free_name(name: str, taken: dict[str, Any]) -> str:
    """Return a name that no column has."""
    while name in taken:
        name += "_"
    return name
