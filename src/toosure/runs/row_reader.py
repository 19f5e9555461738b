"""The rows of a growing file: new bytes are parsed once and appended to columns."""

import json
from array import array
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

Row = dict[str, Any]
ROWS_AT_ONCE = 2000  # parsed before they are put into columns


class RowReader:
    """Read a JSON-lines file as it grows.

    A torn last line waits for its end. A file that was cut back or replaced is read again from
    the start, and `generation` counts that.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.generation = 0
        self._start_again()

    def _start_again(self) -> None:
        """Forget all rows."""
        self.inode = -1
        self.count = 0
        self.last: Row = {}
        self._offset = 0  # bytes that were taken in
        self._lists: dict[str, array[float]] = {}
        self._columns: dict[str, np.ndarray] | None = None
        self._rows: list[Row] | None = None

    def refresh(self) -> bool:
        """Take in what was added; say whether there were new rows."""
        try:
            file = self.file.stat()
        except FileNotFoundError:
            return False
        if file.st_size < self._offset or (self._offset and file.st_ino != self.inode):
            self._start_again()
            self.generation += 1

        self.inode = file.st_ino
        before = self.count
        if file.st_size > self._offset:
            with self.file.open("rb") as lines:
                lines.seek(self._offset)
                while rows := self._next_rows(lines):
                    self._append(rows)
        return self.count > before

    def _next_rows(self, lines: BinaryIO) -> list[Row]:
        """Parse some whole lines, and move on past them."""
        rows: list[Row] = []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._offset += len(line)
            row = as_row(line)
            if row is not None:
                rows.append(row)
            if len(rows) == ROWS_AT_ONCE:
                break
        return rows

    def _append(self, rows: list[Row]) -> None:
        """Add parsed rows to the columns; a key that is new was NaN before."""
        known = self._lists.keys()
        for row in rows:
            if not row.keys() <= known:
                for key in row.keys() - known:
                    self._lists[key] = array("d", [float("nan")]) * self.count

        for key, values in self._lists.items():
            values.extend(
                [value if type(value := row.get(key)) is float else as_float(value) for row in rows]
            )
        self.last = rows[-1]
        self.count += len(rows)
        self._columns = None
        self._rows = None

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Each key as an array of one value per row; NaN where a row does not have it."""
        if self._columns is None:
            order = dict.fromkeys([*self.last, *self._lists])
            self._columns = {key: np.array(self._lists[key]) for key in order}
        return self._columns

    @property
    def rows(self) -> list[Row]:
        """Every row in order, as it was written."""
        if self._rows is None:
            self._rows = read_rows(self.file)[: self.count]
        return self._rows


def read_rows(file: Path) -> list[Row]:
    """Read the rows of a JSON-lines file; a line without its end is still being written."""
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind(b"\n") + 1]
    return [row for line in whole.splitlines() if (row := as_row(line)) is not None]


def as_row(line: bytes) -> Row | None:
    """Read one line, or nothing where a crash left half of one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "step" in row else None


def as_float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
