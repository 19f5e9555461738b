"""The rows of a growing file: new bytes are parsed once and appended to columns."""

import os
from array import array
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from toosure.runs.json_text import parse_json
from toosure.runs.regular_files import in_bytes, open_regular
from toosure.runs.uniform_rows import uniform_rows

Row = dict[str, Any]
ROWS_AT_ONCE = 2000  # parsed before they are put into columns
MAX_LINE = 1 << 20  # bytes of a row; ours have some thousand
MAX_KEYS = 2000  # different keys of all rows
MAX_STEP = 2**53
UNIFORM_BYTES = 1 << 14  # new bytes from which on rows are looked at together
MANY_BYTES = 1 << 22  # new bytes from which on a faster parser is worth its import


class RowReader:
    """Read a JSON-lines file as it grows.

    A torn last line waits for its end. A file that was cut back or replaced is read again from
    the start, and `generation` counts that. What is no row is left out, and `problem` says so.
    """

    def __init__(self, file: Path, follow_links: bool = True) -> None:
        self.file = file
        self.follow_links = follow_links
        self.generation = 0
        self._start_again()

    def _start_again(self) -> None:
        """Forget all rows."""
        self.inode = -1
        self.count = 0
        self.last: Row = {}
        self.unreadable_lines = 0
        self._first_problem = ""
        self._blocked = ""  # why the file cannot be read, or not further
        self._lines = 0
        self._offset = 0  # bytes that were taken in
        self._lists: dict[str, array[float]] = {}
        self._columns: dict[str, np.ndarray] | None = None
        self._rows: list[Row] | None = None

    @property
    def problem(self) -> str:
        """What of the file cannot be read, and why; empty where all can."""
        if self._blocked:
            return self._blocked
        if self.unreadable_lines:
            lines = f"{self.unreadable_lines:,} of {self._lines:,} lines are no rows"
            return f"{lines} ({self._first_problem})"
        return ""

    def refresh(self) -> bool:
        """Take in what was added; say whether there were new rows."""
        self._blocked = ""
        before = self.count
        try:
            with open_regular(self.file, self.follow_links) as lines:
                file = os.fstat(lines.fileno())
                if file.st_size < self._offset or file.st_ino != self.inode != -1:
                    was_read = self._offset > 0
                    self._start_again()
                    self.generation += was_read
                    before = 0

                self.inode = file.st_ino
                lines.seek(self._offset)
                new_bytes = file.st_size - self._offset
                are_many = new_bytes > MANY_BYTES
                rows_left = new_bytes > UNIFORM_BYTES
                while rows_left and self._take_uniform(lines, are_many):
                    rows_left = file.st_size - self._offset > UNIFORM_BYTES
                while rows := self._next_rows(lines):
                    self._append(rows)
                    while len(rows) == ROWS_AT_ONCE and self._take_uniform(lines, are_many):
                        pass
        except FileNotFoundError:
            self._blocked = "it is a link to nowhere" if self.file.is_symlink() else ""
        except (OSError, ValueError, MemoryError) as error:
            self._blocked = str(error)
        if self.count != before:
            self._columns = None
            self._rows = None
        return self.count > before

    def _take_uniform(self, lines: BinaryIO, are_many: bool) -> bool:
        """Take in a block of rows that have the same keys; nothing is read where they do not."""
        block = lines.read(MAX_LINE)
        block = block[: block.rfind(b"\n") + 1]
        rows = uniform_rows(block, are_many) if block else None
        known = self._lists.keys()
        if rows is None or "step" not in rows.keys or len({*known, *rows.keys}) > MAX_KEYS:
            lines.seek(self._offset)
            return False

        steps = rows.values[:, rows.keys.index("step")]
        if np.abs(steps).max() > MAX_STEP:
            lines.seek(self._offset)
            return False

        count = len(rows.values)
        empty = np.full(count, np.nan).tobytes()
        for key in rows.keys:
            self._lists.setdefault(key, array("d", [float("nan")]) * self.count)
        columns = dict(zip(rows.keys, np.ascontiguousarray(rows.values.T), strict=True))
        for key, values in self._lists.items():
            values.frombytes(columns[key].tobytes() if key in columns else empty)

        self._offset += len(block)
        self._lines += count
        lines.seek(self._offset)
        self.last = rows.last
        self.count += count
        return True

    def _next_rows(self, lines: BinaryIO) -> list[Row]:
        """Parse some whole lines, and move on past them."""
        rows: list[Row] = []
        while len(rows) < ROWS_AT_ONCE and (line := lines.readline(MAX_LINE)):
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE:
                    reason = f"line {self._lines + 1} is longer than {in_bytes(MAX_LINE)}"
                    self._blocked = f"{reason}: it and what follows are left out"
                break

            self._offset += len(line)
            self._lines += 1
            try:
                if line.strip():
                    rows.append(parse_row(line))
            except ValueError as error:
                self._note(f"line {self._lines}: ", str(error))
        return rows

    def _note(self, where: str, reason: str) -> None:
        """Count a line that is no row."""
        self.unreadable_lines += 1
        self._first_problem = self._first_problem or where + reason

    def _append(self, rows: list[Row]) -> None:
        """Add parsed rows to the columns; a key that is new was NaN before."""
        known = self._lists.keys()
        kept = []
        for row in rows:
            if not row.keys() <= known:
                new = row.keys() - known
                if len(new) + len(known) > MAX_KEYS:
                    self._note("", f"its rows have more than {MAX_KEYS:,} different keys")
                    continue
                for key in new:
                    self._lists[key] = array("d", [float("nan")]) * self.count
            kept.append(row)
        rows = kept
        if not rows:
            return

        for key, values in self._lists.items():
            values.extend(
                [
                    value if isinstance(value := row.get(key), float) else as_float(value)
                    for row in rows
                ]
            )
        self.last = rows[-1]
        self.count += len(rows)

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
            self._rows = read_rows(self.file)[: self.count] if self.count else []
        return self._rows


def read_rows(file: Path) -> list[Row]:
    """Read the rows of a JSON-lines file; a line without its end is still being written."""
    try:
        with open_regular(file) as opened:
            text = opened.read()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind(b"\n") + 1]
    return [row for line in whole.splitlines() if (row := as_row(line)) is not None]


def as_row(line: bytes) -> Row | None:
    """Read one line, or nothing where a crash left half of one."""
    try:
        return parse_row(line)
    except ValueError:
        return None


def parse_row(line: bytes) -> Row:
    """Read one line, or raise ValueError with the reason why it is no row."""
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError(f"a row must be a JSON object; got {type(row).__name__}")
    if "step" not in row:
        raise ValueError("a row must have a step")
    step = row["step"]
    if type(step) not in (int, float) or not abs(step) <= MAX_STEP:
        raise ValueError(f"step must be a number up to 2^53; got {str(step)[:40]}")
    return row


def as_float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
