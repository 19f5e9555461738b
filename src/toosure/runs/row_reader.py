"""Read the rows of a growing file: new bytes are parsed once and appended to columns."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from toosure.runs.json_text import parse_json
from toosure.runs.regular_files import open_regular
from toosure.runs.uniform_rows import uniform_rows
from toosure.sentences import size_text

Row = dict[str, Any]
Columns = dict[str, np.ndarray]  # each key as an array of one value per row
ROWS_AT_ONCE = 2000  # parsed before they are put into columns
MAX_LINE = 1 << 20  # bytes of a row; ours have some thousand
BLOCK_BYTES = 1 << 18  # of rows parsed together; larger blocks would allocate memory each time
MAX_KEYS = 2000  # different keys of all rows
MAX_STEP = 2**53
UNIFORM_BYTES = 1 << 14  # new bytes that make parsing rows together worthwhile
MANY_BYTES = 1 << 22  # new bytes that make importing a faster parser worthwhile


@dataclass(eq=False)
class RowReader:
    """Read a JSON-lines file as it grows: `refresh` reads new lines.

    A torn last line waits for its end. A file that was cut back or replaced is read again from the
    start, which `generation` counts. Lines that are not rows are skipped, and `problem` names them.
    """

    file: Path
    follow_links: bool = True
    generation: int = 0

    inode: int = -1
    count: int = 0
    last: Row = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)  # NaN where a row has no such key
    unreadable_lines: int = 0
    _first_problem: str = ""
    _blocked: str = ""  # why the file cannot be read, or not further
    _keys: dict[str, None] = field(default_factory=dict)  # of all rows
    _lines: int = 0
    _offset: int = 0  # bytes that were taken in
    _rows: list[Row] | None = None

    @property
    def problem(self) -> str:
        """What cannot be read of the file, and why; empty if everything can."""
        if self._blocked:
            return self._blocked
        if self.unreadable_lines:
            lines = f"{self.unreadable_lines:,} of {self._lines:,} lines are no rows"
            return f"{lines} ({self._first_problem})"
        return ""

    def refresh(self) -> bool:
        """Read new lines; return whether there were new rows."""
        self._blocked = ""
        parts: list[Columns] = []
        try:
            with open_regular(self.file, self.follow_links) as lines:
                file = os.fstat(lines.fileno())
                if file.st_size < self._offset or file.st_ino != self.inode != -1:
                    generation = self.generation + (self._offset > 0)
                    begun_anew = RowReader(self.file, self.follow_links, generation)
                    vars(self).update(vars(begun_anew))

                self.inode = file.st_ino
                are_many = file.st_size - self._offset > MANY_BYTES
                while self._offset < file.st_size:
                    is_long = file.st_size - self._offset > UNIFORM_BYTES
                    part = self._next_uniform_rows(lines, are_many) if is_long else {}
                    part = part or self._next_rows(lines)
                    if not part:
                        break
                    parts.append(part)
        except FileNotFoundError:
            self._blocked = "it is a link to nowhere" if self.file.is_symlink() else ""
        except (OSError, ValueError, MemoryError) as error:
            self._blocked = str(error)
        if not parts:
            return False

        # Every row has a step, so its column is as long as the part; other keys may be missing.
        parts = [self.columns, *parts] if self.columns else parts
        self.columns = {
            key: np.concatenate(
                [part[key] if key in part else np.full(len(part["step"]), np.nan) for part in parts]
            )
            for key in dict.fromkeys([*self.last, *self._keys])
        }
        self._rows = None
        return True

    def _next_uniform_rows(self, lines: BinaryIO, are_many: bool) -> Columns:
        """Return a block of rows with the same keys; read nothing if the keys differ."""
        lines.seek(self._offset)
        block = lines.read(BLOCK_BYTES)
        block = block[: block.rfind(b"\n") + 1]
        rows = uniform_rows(block, are_many) if block else None
        if rows is None or "step" not in rows.keys or len({*self._keys, *rows.keys}) > MAX_KEYS:
            return {}
        columns = dict(zip(rows.keys, np.ascontiguousarray(rows.values.T), strict=True))
        if np.abs(columns["step"]).max() > MAX_STEP:
            return {}

        self._keys.update(dict.fromkeys(rows.keys))
        self._offset += len(block)
        self._lines += len(rows.values)
        self.count += len(rows.values)
        self.last = rows.last
        return columns

    def _next_rows(self, lines: BinaryIO) -> Columns:
        """Parse some whole lines, and move on past them."""
        lines.seek(self._offset)
        rows: list[Row] = []
        while len(rows) < ROWS_AT_ONCE and (line := lines.readline(MAX_LINE)):
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE:
                    reason = f"line {self._lines + 1} is longer than {size_text(MAX_LINE)}"
                    self._blocked = f"{reason}: it and what follows are left out"
                break

            self._offset += len(line)
            self._lines += 1
            try:
                if line.strip():
                    row = parse_row(line)
                    if len(self._keys.keys() | row.keys()) > MAX_KEYS:
                        raise ValueError(f"its rows have more than {MAX_KEYS:,} different keys")
                    self._keys.update(dict.fromkeys(row))
                    rows.append(row)
            except ValueError as error:
                self.unreadable_lines += 1
                self._first_problem = self._first_problem or f"line {self._lines}: {error}"
        if not rows:
            return {}

        self.last = rows[-1]
        self.count += len(rows)
        columns: Columns = {}
        for key in dict.fromkeys(key for row in rows for key in row):
            values = (row.get(key) for row in rows)
            numbers = [float(v) if isinstance(v, int | float) else math.nan for v in values]
            columns[key] = np.array(numbers)
        return columns

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
    """Read one line; return None for a line that a crash left unfinished."""
    try:
        return parse_row(line)
    except ValueError:
        return None


def parse_row(line: bytes) -> Row:
    """Read one line, or raise ValueError with the reason why it is not a row."""
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError(f"a row must be a JSON object; got {type(row).__name__}")
    if "step" not in row:
        raise ValueError("a row must have a step")
    step = row["step"]
    if type(step) not in (int, float) or not abs(step) <= MAX_STEP:
        raise ValueError(f"step must be a number up to 2^53; got {str(step)[:40]}")
    return row
