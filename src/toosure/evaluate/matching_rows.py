"""Check that two sets of predictions are of the same rows and classes."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from toosure.metrics.group_draws import group_count
from toosure.predictions import Predictions
from toosure.predictions.spellings import without_fraction
from toosure.predictions.usual_names import listed_columns, without_common

ID_COLUMNS = ("id", "ids", "uid", "uuid", "filename", "file", "path")


def check_same_rows(first: Predictions, second: Predictions) -> str:
    """Refuse files of different rows; return how it is known that the rows are the same."""
    both = f"{first.source or 'the first'} and {second.source or 'the second'}"
    if first.n != second.n:
        raise ValueError(
            f"{both} have {first.n:,} and {second.n:,} rows: give the same rows in the same order"
        )
    known_by = ""
    for column in ID_COLUMNS:
        if column in first.extras and column in second.extras:
            own, other = comparable(first.extras[column], second.extras[column])
            if (own != other).any():
                row = int(np.flatnonzero(own != other)[0])
                ids = [without_fraction(str(side[row])) for side in (own, other)]
                raise ValueError(
                    f"{both} are not of the same rows: row {row} has {column} "
                    f"{' and '.join(ids)}; sort both by {column}"
                )
            known_by = f"same rows by {column!r}"
            break

    groups = [side.groups for side in (first, second) if side.groups is not None]
    if len(groups) == 2 and not same_groups(*groups):
        raise ValueError(f"{both} are not of the same rows: their rows come in other groups")

    if first.labels is None or second.labels is None:
        return known_by or "confidences only: that the rows are the same cannot be checked"
    different = (first.labels != second.labels).nonzero().flatten()
    if len(different):
        row = int(different[0])
        raise ValueError(
            f"{both} are not of the same rows: {len(different):,} of {first.n:,} labels differ, "
            f"first in row {row} ({int(first.labels[row])} and {int(second.labels[row])}); save "
            "both in the same order"
        )
    return known_by or "same rows by their labels"


def same_groups(first: Tensor, second: Tensor) -> bool:
    """Whether two groupings of the rows are equal. Numbers may differ: as text, 10 is before 9.

    >>> import torch
    >>> same_groups(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0]))
    True
    """
    counts = group_count(first), group_count(second)
    pairs = (first * counts[1] + second).unique()
    return counts == (len(pairs), len(pairs))


def comparable(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two columns as numbers if both are numbers (7 equals 7.0), otherwise as text."""
    if all(column.dtype.kind in "biuf" for column in (first, second)):
        return first, second
    return first.astype(str), second.astype(str)


def check_same_classes(first: Predictions, second: Predictions) -> None:
    """Refuse files with different class names, or with classes in another order."""
    if names_differ(first.names, second.names):
        raise ValueError(
            f"{first.source or 'the first'} and {second.source or 'the second'} name or order "
            f"their classes differently ({listed_columns(first.names)} and "
            f"{listed_columns(second.names)}): make them the same"
        )


def names_differ(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether class names or their order differ.

    The numbers 0 .. C - 1 do not count as names, except in another order; nor does the name of a
    model before or after all classes.

    >>> [names_differ(("cat", "dog"), names) for names in (("dog", "cat"), ("0", "1"), ())]
    [True, False, False]
    >>> names_differ(("0", "1"), ("1", "0")), names_differ(("cat", "dog"), ("gb_cat", "gb_dog"))
    (True, False)
    """
    own, other = tuple(first), tuple(second)
    if not own or not other or other in (own, tuple(without_common(own))):
        return False
    if own == tuple(without_common(other)):
        return False
    numbers = tuple(map(str, range(max(len(own), len(other)))))
    return set(own) == set(other) or numbers not in (own, other)
