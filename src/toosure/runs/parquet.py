"""Write columns of mixed values as Parquet, where each column has one type."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow import Array


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table; texts in a column of numbers go to another column, NAME/text."""
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
    """Return the numbers and the texts of a column, each with nulls; None for an empty part.

    Lists and objects become texts of JSON. Numbers of several types, or too large for 64 bits,
    become floats. An empty column counts as numbers.
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
    """Return a value that is not a number as text."""
    if value is None or isinstance(value, bool | int | float):
        return None
    return value if isinstance(value, str) else json.dumps(value)


def as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return float("inf") if value > 0 else float("-inf")


def free_name(name: str, taken: dict[str, Any]) -> str:
    """Return an unused name of a column."""
    while name in taken:
        name += "_"
    return name
