"""Groups of rows (patients, sequences), from a column or an array beside the scores."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from toosure.metrics.group_draws import group_count, group_numbers
from toosure.predictions.options import ReadOptions
from toosure.predictions.predictions import Predictions
from toosure.predictions.usual_names import listed_columns
from toosure.runs.row_units import unit_array, unit_in


def check_group_name(options: ReadOptions, arrays: Mapping[str, Any], *taken: str | None) -> None:
    """Raise if the groups that are asked for are scores or labels, or cannot be read."""
    name = options.groups
    if name is None:
        return
    if name in taken:
        raise ValueError(
            f"--groups {name} names scores or labels: name what rows have in common, as a patient"
        )
    if name in arrays and arrays[name] is None:
        raise ValueError(
            f"{name} holds Python objects, which are not read: save names as text, "
            f"np.array({name}, dtype=str)"
        )


def with_groups(predictions: Predictions, options: ReadOptions) -> Predictions:
    """Return predictions with the groups that are asked for, one for each row that is kept.

    A watched loop saves the sequence or image of each row: these are the groups by default.
    """
    if options.groups is not None:
        groups = groups_of(predictions.extras, options.groups, predictions.n)
        return replace(predictions, groups=groups)

    unit = unit_in(predictions.extras)
    if unit is None:
        return predictions
    numbers = predictions.extras[unit_array("", unit)]
    if len(np.unique(numbers)) < 2:  # one sequence alone shows no spread
        return predictions
    return replace(predictions, groups=group_numbers(numbers, predictions.n), group_name=unit)


def groups_of(arrays: Mapping[str, np.ndarray], name: str, n: int) -> Tensor:
    """Return the group of each of n rows, 0 .. G - 1, by an array of one name or number per row."""
    if name not in arrays or arrays[name].shape != (n,):
        rows = [other for other, values in arrays.items() if values.shape == (n,)]
        there = f"there is {listed_columns(rows)}" if rows else "there is none"
        raise ValueError(f"no column or array {name!r} of one value per row, as groups; {there}")

    values = arrays[name]
    empty = np.isnan(values) if values.dtype.kind == "f" else values.astype(str) == ""
    if empty.any():
        row = int(np.flatnonzero(empty)[0])
        raise ValueError(f"{name!r} names no group in row {row}: drop such rows, or fill them")
    return group_numbers(values, n)


def groups_note(predictions: Predictions, options: ReadOptions) -> str:
    """Return how many groups were read, and from where."""
    name = group_array(predictions, options)
    if name is None or predictions.groups is None:
        return ""
    return f"{group_count(predictions.groups):,} groups from {name!r}"


def group_array(predictions: Predictions, options: ReadOptions) -> str | None:
    """Return the column or array that the groups were read from; None without one."""
    if options.groups is not None or predictions.groups is None:
        return options.groups
    unit = unit_in(predictions.extras)
    return None if unit is None else unit_array("", unit)
