"""Rows that all have the same keys and nothing but numbers, as training writes them: read fast.

Numbers are converted by numpy, without an object for each: 1.5 times as fast as row by row.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from toosure.runs.json_text import parse_json

IS_NUMBER = np.zeros(256, dtype=bool)  # the bytes of which numbers are made
IS_NUMBER[np.frombuffer(b"0123456789+-.eE", dtype=np.uint8)] = True
BLANKS = bytes.maketrans(b"{}:,\n", b"     ")
QUOTE = ord('"')
SPACE = np.uint8(ord(" "))


class UniformRows(NamedTuple):
    """Some rows as a table."""

    keys: list[str]
    values: np.ndarray  # (rows, keys)
    last: dict[str, Any]  # the last row, as it was written


def uniform_rows(block: bytes) -> UniformRows | None:
    """Read whole lines that differ in their numbers alone; nothing where they are not like that.

    >>> uniform_rows(b'{"step": 0, "a": 1.5}\\n{"step": 1, "a": -2e3}\\n').values.tolist()
    [[0.0, 1.5], [1.0, -2000.0]]
    >>> uniform_rows(b'{"step": 0, "a": 1.5}\\n{"step": 1, "a": null}\\n') is None
    True
    """
    count = block.count(b"\n")
    first = block[: block.find(b"\n") + 1]
    if b"\\" in first:
        return None

    text = np.frombuffer(block, dtype=np.uint8)
    quotes = text == QUOTE
    in_keys = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(bool) | quotes
    skeleton = text[in_keys | ~IS_NUMBER[text]].tobytes()
    width = len(skeleton) // count
    if skeleton != skeleton[:width] * count:
        return None

    try:
        row = parse_json(first)
        last = parse_json(block[block.rfind(b"\n", 0, -1) + 1 :])
    except ValueError:
        return None
    if not all(type(value) in (int, float) for value in row.values()):
        return None

    numbers = np.where(in_keys, SPACE, text).tobytes().translate(BLANKS)
    values = parsed(numbers)
    if values is None or values.size != count * len(row) or not np.isfinite(values).all():
        return None
    return UniformRows(list(row), values.reshape(count, len(row)), last)


def parsed(numbers: bytes) -> np.ndarray | None:
    """Return the numbers of a text between blanks; nothing where one of them is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.fromstring(numbers.decode("latin1"), sep=" ")
    except (ValueError, DeprecationWarning):
        return None
