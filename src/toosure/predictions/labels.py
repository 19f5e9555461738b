"""Labels in any form that files hold: class names, numbers, whole floats, booleans, columns."""

from collections.abc import Sequence

import numpy as np

from toosure.predictions.missing_labels import MISSING, check_missing
from toosure.predictions.spellings import spellings_of, without_fraction
from toosure.predictions.truth_words import BOOLEANS, POSITIVE, boolean_numbers, class_of_truth
from toosure.predictions.usual_names import listed_columns, without_common

MAX_DIGITS = 18  # of an integer that fits into 64 bits


def flat(values: np.ndarray) -> np.ndarray:
    """Return labels (N,) of labels (N,) or (N, 1); leave others unchanged."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def kept_rows(values: np.ndarray, ignore_index: int | None) -> np.ndarray:
    """Return which rows have another label than `ignore_index`, (N,) bool."""
    if ignore_index is None:
        return np.ones(len(values), dtype=bool)
    if values.dtype.kind in "biuf":
        return np.asarray(values != ignore_index)
    spelled, inverse = np.unique(values.astype(str), return_inverse=True)
    kept = [without_fraction(label.strip()) != str(ignore_index) for label in spelled.tolist()]
    return np.array(kept, dtype=bool)[inverse]


def some_missing(values: np.ndarray) -> bool:
    """Whether some rows have no label: an empty cell, NaN, or the usual marks -1 and -100.

    >>> some_missing(np.array([2.0, np.nan])), some_missing(np.array(["cat", "dog"]))
    (True, False)
    """
    spelled = np.char.strip(np.unique(flat(values).astype(str))).tolist()
    missing = (*MISSING, "-1", "-100")
    return any(without_fraction(label).lower() in missing for label in spelled)


def ignored_note(count: int) -> str:
    """Return a note on how many rows were left out."""
    return f"ignored {count:,} rows by their label"


def class_numbers(
    values: np.ndarray,
    names: Sequence[str],
    classes: int,
    binary: bool = False,
    names_given: bool = False,
) -> np.ndarray:
    """Number the labels by the names of the classes; whole numbers are kept.

    `names` are empty where nobody named the classes; `binary` is one score per row; `names_given`
    is whether the user named the classes.
    """
    if values.dtype.kind == "b":
        return boolean_numbers(values, names, classes)
    if values.dtype.kind == "c":
        raise ValueError("labels are complex numbers: give the number or the name of each class")

    spellings = spellings_of(values)
    check_missing(spellings, names)
    spelled, inverse = np.unique(spellings, return_inverse=True)
    labels: list[str] = spelled.tolist()
    if numbered_otherwise(names):
        numbers = numbers_of_names(labels, names, names_given)
    else:
        by_name = numbers_by_name(labels, names)
        numbers = whole_numbers(labels, names, classes, binary) if by_name is None else by_name
    return np.array(numbers, dtype=np.int64)[inverse]


def numbered_otherwise(names: Sequence[str]) -> bool:
    """Whether classes are named by whole numbers other than 0 .. C - 1, as 1, 2, 3.

    >>> [numbered_otherwise(names) for names in ("123", "201", "ab", "")]
    [True, False, False, False]
    """
    numbers = [without_fraction(name) for name in names]
    are_numbers = bool(numbers) and all(n.removeprefix("-").isdecimal() for n in numbers)
    return are_numbers and set(numbers) != set(map(str, range(len(numbers))))


def by_name_note(names: Sequence[str]) -> str:
    """Note that labels are names, if they could be taken for positions."""
    return f"by name: {names[0]} is the first class" if numbered_otherwise(names) else ""


def spelled_labels(values: np.ndarray) -> set[str]:
    """Return the labels that occur, as text, without the fractions of whole floats."""
    return {
        without_fraction(label) for label in np.unique(np.char.strip(values.astype(str))).tolist()
    }


def own_names_or_shorter(own_names: tuple[str, ...], labels: set[str]) -> tuple[str, ...]:
    """Return names of classes, without the name of a model if labels or yes and no ask for that.

    >>> own_names_or_shorter(("rf_cat", "rf_dog"), {"cat"})
    ('cat', 'dog')
    >>> own_names_or_shorter(("rf_1", "rf_0"), {"true", "false"})
    ('1', '0')
    """
    shorter = tuple(without_common(own_names))
    lower = {name.lower() for name in shorter}
    are_opposites = len(shorter) == 2 and {POSITIVE.get(name) for name in lower} == {True, False}
    are_named = {label.lower() for label in labels} <= lower
    return shorter if (are_opposites or are_named) and not labels & set(own_names) else own_names


def by_position(values: np.ndarray, names: Sequence[str]) -> bool:
    """Whether labels are numbers of the classes, or true and false, and their names are others.

    >>> by_position(np.array([0, 1]), ["cat", "dog"]), by_position(np.array([0, 1]), ["0", "1"])
    (True, False)
    """
    if not names or all(without_fraction(name).isdecimal() for name in names):
        return False
    if values.dtype.kind in "iuf":
        return True
    spelled = set(np.unique(np.char.strip(values.astype(str))).tolist())
    lower = {name.lower() for name in names}
    return not any(label.lower() in lower for label in spelled)


def numbers_of_names(labels: list[str], names: Sequence[str], names_given: bool) -> list[int]:
    """Return the class of each label if the names of the classes are numbers, as 1, 2, 3.

    A label is then a name and never a position, whichever labels occur. Where all of them could be
    positions too, and mean other classes, the user must say which.
    """
    place = {without_fraction(name): k for k, name in enumerate(names)}
    labels = [without_fraction(label) for label in labels]
    strange = [label for label in labels if label not in place]
    positions = [str(k) for k in range(len(names))]
    may_be_positions = all(label in positions for label in labels)

    by_position = classes_option(positions)
    if strange and may_be_positions and not names_given:
        raise ValueError(
            f"label {strange[0]} is none of the classes {listed_columns(names)}: if labels number "
            f"the columns from 0, whatever their names, say {by_position}"
        )
    if strange:
        raise ValueError(strange_label(strange[0], labels, names))
    if may_be_positions and not names_given and any(place[label] != int(label) for label in labels):
        raise ValueError(
            f"labels {listed_columns(labels)} may be the names of the classes "
            f"{listed_columns(names)}, or number them from 0: say {classes_option(names)} for "
            f"names, {by_position} for numbers"
        )
    return [place[label] for label in labels]


def strange_label(label: str, labels: list[str], names: Sequence[str]) -> str:
    """Return the error for a label that names no class, among labels that are names."""
    if not label.removeprefix("-").isdecimal():
        return name_problem(label, labels, names, len(names), binary=False)
    hint = ": drop such rows, or give that class a column"
    if label in ("-1", "-100"):
        hint = f": if {label} marks rows without a label, say --ignore-index {label}"
    return f"label {label} is none of the classes {listed_columns(names)}{hint}"


def numbers_by_name(spelled: list[str], names: Sequence[str]) -> list[int] | None:
    """Return the class number of each spelling; None if one of them names no class."""
    number = {name: k for k, name in enumerate(names)}
    for labels in (spelled, [without_fraction(label) for label in spelled]):
        if all(label in number for label in labels):
            return [number[label] for label in labels]

    # Two classes called true and false, or yes and no, however they are spelled.
    lower = {name.lower(): k for name, k in number.items()}
    are_opposites = {POSITIVE.get(name) for name in lower} == {True, False}
    if are_opposites and all(label.lower() in lower for label in spelled):
        return [lower[label.lower()] for label in spelled]
    return None


def whole_numbers(
    spelled: list[str], names: Sequence[str], classes: int, binary: bool
) -> list[int]:
    """Return labels that are whole numbers; raise with a hint how to name the classes."""
    spelled = [without_fraction(label) for label in spelled]
    if classes == 2 and all(label.lower() in BOOLEANS for label in spelled):
        true, false = class_of_truth(names), 1 - class_of_truth(names)
        words = [true if BOOLEANS[label.lower()] else false for label in spelled]
        return [int(k) if k.isdecimal() else n for k, n in zip(spelled, words, strict=True)]
    strange = [label for label in spelled if label not in names]
    if any(label in names and not label.isdecimal() for label in spelled):  # so all are names
        raise ValueError(strange_label(strange[0], spelled, names))

    for label in spelled:
        digits = label.lstrip("-")
        if digits.isdecimal() and len(digits) > MAX_DIGITS:
            raise ValueError(f"labels must be integers in [0, {classes}); got {label[:40]}")
        if not digits.isdecimal():
            raise ValueError(name_problem(label, spelled, names, classes, binary))

    numbers = [int(label) for label in spelled]
    low, high = min(numbers), max(numbers)
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels must be integers in [0, {classes}); got {low} to {high}"
            + range_hint(numbers, classes)
        )
    return numbers


def name_problem(
    label: str, spelled: list[str], names: Sequence[str], classes: int, binary: bool
) -> str:
    """Return the error for a label that is not a class."""
    alike = [name for name in names if name.strip().casefold() == label.casefold()]
    if alike:
        return f"label {label!r} is not {alike[0]!r}: make them the same"
    if names and not binary:
        expected = f"a class column's name or an integer in [0, {classes})"
        return (
            f"label must be {expected}; got {label!r}, and the classes are "
            f"{listed_columns(names)}: drop such rows, or give that class a column"
        )
    if binary:
        return (
            f"labels are {listed_columns(spelled)}: say which of two is class 1, whose probability "
            "the file holds, as the second one: --classes CLASS_0,CLASS_1"
        )

    return (
        f"labels are names ({listed_columns(spelled)}): give those of all {classes} columns in "
        f"their order, --classes FIRST,SECOND{',...' if classes > 2 else ''}"
    )


def classes_option(names: Sequence[str]) -> str:
    """Return the option that names the classes, the first ones of many.

    >>> classes_option("0123"), classes_option(["-1", "1"])
    ('--classes 0,1,2,...', '--classes=-1,1')
    """
    sign = "=" if names[0].startswith("-") else " "
    return f"--classes{sign}{','.join(names[:3])}{',...' if len(names) > 3 else ''}"


def range_hint(numbers: list[int], classes: int) -> str:
    """Note how labels that do not count from 0 are read, if the numbers tell."""
    if min(numbers) == 1 and max(numbers) == classes:
        counted = [str(k) for k in range(1, classes + 1)]
        return f": if they count from 1, say {classes_option(counted)}"
    if classes == 2 and len(set(numbers)) == 2:
        low, high = sorted(set(numbers))
        return f": if class 1 is {high}, say {classes_option([str(low), str(high)])}"
    if -100 in numbers or -1 in numbers:
        ignored = -100 if -100 in numbers else -1
        return f": if {ignored} marks rows without a label, say --ignore-index {ignored}"
    return ""
