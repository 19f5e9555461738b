"""Rows without a label: empty cells, NaN, and words such as null."""

from collections.abc import Sequence

import numpy as np

MISSING = ("", "nan", "none", "null", "na", "<na>")  # labels that are none


def check_missing(spellings: np.ndarray, names: Sequence[str]) -> None:
    """Refuse labels that are empty or NaN, unless a class is called so."""
    words = [word for word in MISSING if word not in [name.lower() for name in names]]
    missing = np.flatnonzero(np.isin(np.char.lower(spellings), words))
    if len(missing):
        word = str(spellings[missing[0]])
        may_be_class = not names and word.lower() in ("none", "null", "na")
        hint = f"; if {word} is a class, name the classes, --classes" if may_be_class else ""
        raise ValueError(missing_labels(missing, repr(word)) + hint)


def missing_labels(rows: np.ndarray, label: object) -> str:
    """Return the error for rows without a label.

    >>> missing_labels(np.array([3, 8]), "nan")
    '2 rows have no label, the first is row 3 (line 5 of a .csv, nan): drop such rows'
    """
    first = f"row {rows[0]} (line {rows[0] + 2} of a .csv, {label})"
    if len(rows) == 1:
        return f"1 row has no label, {first}: drop it"
    return f"{len(rows):,} rows have no label, the first is {first}: drop such rows"
