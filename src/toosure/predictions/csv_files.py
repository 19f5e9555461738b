"""Read .csv files as people write them: commas, semicolons or tabs, numbers and text mixed."""

import csv
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import TextIO

import numpy as np

from toosure.predictions.usual_names import any_is_other

DECIMAL_COMMA = re.compile(r"^[-+]?\d+(,\d+)?([eE][-+]?\d+)?$")
SEPARATORS = (",", ";", "\t", "|")


def read_csv(path: Path, as_text: Callable[[list[str]], list[str]]) -> dict[str, np.ndarray]:
    """Read a .csv with a header: columns of numbers as float64, all others as text.

    `as_text` tells which columns stay as they are spelled, because labels may be names.
    """
    separator = separator_of(path)
    names = header_of(path, separator)
    if not names:
        return {}
    cells = any(map(is_fraction, names)) or repeats_decimal(names)
    if all(map(is_number, names)) or (cells and not as_text(names) and not any_is_other(names)):
        raise ValueError(no_header(names))
    if len(set(names)) < len(names):
        raise ValueError(f"has two columns of one name among {', '.join(names)}")

    spelled = [names.index(name) for name in as_text(names)]
    numeric = [i for i in numeric_columns(path, separator) if i not in spelled]
    numbers = read_numbers(path, separator, numeric)
    if numbers is None:
        return columns_of_rows(path, separator, names, spelled)

    others = [i for i in range(len(names)) if i not in numeric]
    columns = dict(zip(names, read_text(path, separator, names, others), strict=True))
    for i in (i for i in others if i not in spelled):
        columns[names[i]] = with_points(columns[names[i]])
    return columns | {names[i]: numbers[:, k] for k, i in enumerate(numeric)}


def cells_of(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """Return columns of a .csv as they are spelled: 01234 stays 01234, and 7 is not 7.0."""
    separator = separator_of(path)
    names = header_of(path, separator)
    rows = read_rows(path, separator, len(names))
    return {
        name: np.array([row[i] for row in rows], dtype=np.str_)
        for i, name in enumerate(names)
        if name in wanted
    }


def is_filled(row: list[str]) -> bool:
    """Whether a row is more than a blank line; cells that are all empty are a row.

    In a file of one column pandas writes a missing value as "", which is no blank line.
    """
    return len(row) > 1 or row == [""] or any(cell.strip() for cell in row)


def filled_rows(file: TextIO, separator: str) -> Iterator[list[str]]:
    """Yield the rows of an open file, without its blank lines."""
    return filter(is_filled, csv.reader(file, delimiter=separator))


def no_header(cells: list[str]) -> str:
    """Say that the first line holds numbers, and which header fits a file that begins so.

    >>> no_header(["7", "0.9", "0.1", "1"]).split(": ")[1]
    'add a first line such as id,p_0,p_1,label'
    >>> no_header(["1.0", "0.0", "cat"]).split(": ")[1]
    'add a first line such as p_A,p_B,label, with your classes for A, B'
    """
    others = [i for i, cell in enumerate(cells) if not is_decimal(cell)]
    last = len(cells) - 1
    label = others[-1] if is_fraction(cells[last]) and others else last
    scores = [i for i in range(len(cells)) if i not in (*others, label)]
    named = not is_number(cells[label]) and len(scores) <= len(ascii_uppercase)
    classes = [ascii_uppercase[k] if named else str(k) for k in range(len(scores))]

    names = ["id"] * len(cells)
    names[label] = "label"
    for name, place in zip(classes, scores, strict=True):
        names[place] = f"p_{name}"
    meant = f", with your classes for {', '.join(classes)}" if named else ""
    return (
        "the first line must name the columns, and holds numbers: add a first line such as "
        f"{','.join(names)}{meant}"
    )


def header_of(path: Path, separator: str) -> list[str]:
    """Return the names in the first line; np.savetxt writes it as a comment."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = [name.strip() for name in next(filled_rows(file, separator), [])]
    return [names[0].removeprefix("#").strip(), *names[1:]] if names else []


def separator_of(path: Path) -> str:
    """Return what separates the names of the header: the most frequent of , ; tab and |."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next((line for line in file if line.strip()), "")
    return max(SEPARATORS, key=header.count)


def numeric_columns(path: Path, separator: str) -> list[int]:
    """Return the positions whose cell in the first row is a number."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = filled_rows(file, separator)
        next(rows)
        first = next(rows, [])
    return [i for i, cell in enumerate(first) if is_number(cell)]


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_decimal(cell: str) -> bool:
    """Whether a cell is a number that is written with a point or an exponent; nan is not."""
    has_digit = any(map(str.isdigit, cell))
    return has_digit and is_number(cell) and not cell.strip("+-").isdecimal()


def repeats_decimal(names: list[str]) -> bool:
    """Whether names hold a number such as 0.0 twice: then they are cells."""
    decimals = [name for name in names if is_decimal(name)]
    return len(set(decimals)) < len(decimals)


def is_fraction(cell: str) -> bool:
    """Whether a cell is a number that is not whole, as few columns are named."""
    return is_decimal(cell) and not float(cell).is_integer()


def read_numbers(path: Path, separator: str, positions: list[int]) -> np.ndarray | None:
    """Read columns of numbers, fast; None if one of them has other cells."""
    if not positions:
        return np.zeros((0, 0))

    with (
        warnings.catch_warnings(action="ignore", category=UserWarning),  # no rows: refused later
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        next(filled_rows(file, separator))
        try:
            rows = np.loadtxt(
                file,
                np.float64,
                delimiter=separator,
                quotechar='"',
                usecols=positions,
                ndmin=2,
                comments=None,
            )
        except ValueError:
            return None
    return rows.reshape(-1, len(positions))


def with_points(cells: np.ndarray) -> np.ndarray:
    """Return numbers that are written with a decimal comma as numbers; other text as it is."""
    if not len(cells) or not all(DECIMAL_COMMA.match(cell) for cell in cells.tolist()):
        return cells
    return np.char.replace(cells, ",", ".").astype(np.float64)


def read_rows(path: Path, separator: str, width: int) -> list[list[str]]:
    """Read the cells below the header; each row must have one for every name."""
    rows = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        filled = filter(is_filled, reader)
        next(filled)
        for row in filled:
            if len(row) != width:
                raise ValueError(
                    f"line {reader.line_num} has {len(row)} cells and the header {width}"
                    + comment_hint(path)
                )
            rows.append(row)
    return rows


def comment_hint(path: Path) -> str:
    """Say that the first line was taken for the header, if it begins as a comment does."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = next((line for line in file if line.strip()), "")
    if not first.lstrip().startswith("#"):
        return ""
    return ": the first line begins with # and was taken for it; if it is a comment, delete it"


def read_text(
    path: Path, separator: str, names: list[str], positions: list[int]
) -> list[np.ndarray]:
    """Return a column of text for each name; empty for the others than `positions`."""
    columns = [np.zeros(0)] * len(names)
    if not positions:
        return columns
    rows = read_rows(path, separator, len(names))
    for i in positions:
        columns[i] = np.array([row[i].strip() for row in rows], dtype=np.str_)
    return columns


def columns_of_rows(
    path: Path, separator: str, names: list[str], spelled: list[int]
) -> dict[str, np.ndarray]:
    """Read all cells as text and turn the columns that are numbers throughout into numbers."""
    rows = read_rows(path, separator, len(names))
    columns: dict[str, np.ndarray] = {}
    for i, name in enumerate(names):
        cells = [row[i].strip() for row in rows]
        if i not in spelled and all(map(is_number, cells)):
            columns[name] = np.array(list(map(float, cells)), dtype=np.float64)
        else:
            text = np.array(cells, dtype=np.str_)
            columns[name] = text if i in spelled else with_points(text)
    return columns
