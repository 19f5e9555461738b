"""Read a run folder while it grows or after: needs neither torch nor a lock."""

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toosure.runs.files import is_locked, read_json
from toosure.runs.show import as_html

Row = dict[str, Any]
USUAL = ("complete", "running", "ended")  # what needs no warning; "ended" is a loop of one's own
DAMAGE = (  # what a file of arrays that was cut off or overwritten may raise
    *(OSError, ValueError, KeyError, EOFError, RuntimeError, TypeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


@dataclass(frozen=True)
class Run:
    """Read a run folder: `config`, `environment`, `status`, `rows`, `columns`, `snapshots`.

    What is read is kept; make a new `Run` to see what has been added since. `config` and
    `environment` are plain dictionaries, empty where there is no such file or it is damaged.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        if not self.path.is_dir():
            raise ValueError(f"{self.path} is not a run folder")

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def config(self) -> dict[str, Any]:
        """What was asked."""
        return self._file("config")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where it ran: versions, device, commit, command."""
        return self._file("environment")

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """How it ended: `status`, the `step` it reached, and a `message`."""
        return self._file("status")

    @property
    def status(self) -> str:
        """One of running, complete, ended, diverged, stopped, failed; interrupted if killed.

        "unreadable" where a file of the run is damaged: the rest of it can still be read.
        """
        if self.damage:
            return "unreadable"
        said = self.outcome.get("status", "running")
        return "interrupted" if said == "running" and not is_locked(self.path) else said

    def _file(self, name: str) -> dict[str, Any]:
        try:
            return read_json(self.path / f"{name}.json")
        except ValueError:
            return {}  # `damage` says so

    @cached_property
    def damage(self) -> list[str]:
        """Which files of the run cannot be read, a sentence each."""
        found = []
        for name in ("config", "environment", "status"):
            try:
                read_json(self.path / f"{name}.json")
            except ValueError as error:
                found.append(str(error))
        return found

    @cached_property
    def rows(self) -> list[Row]:
        """Every measurement in order, a torn last line left out."""
        return read_rows(self.path / "metrics.jsonl")

    @property
    def last(self) -> Row:
        """The latest measurement, empty before the first."""
        return self.rows[-1] if self.rows else {}

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Each key as an array of one value a row; NaN where a row does not have it."""
        keys = dict.fromkeys(key for row in self.rows for key in row)
        return {key: np.array([as_float(row.get(key)) for row in self.rows]) for key in keys}

    @property
    def snapshots(self) -> list[int]:
        """The steps at which a snapshot was kept, in order."""
        found = (self.path / "snapshots").glob("*.npz")
        return sorted(int(file.stem) for file in found if file.stem.isdigit())

    def snapshot(self, step: int) -> dict[str, np.ndarray]:
        """Read the histograms and reliability bins of a step, by name such as `val_counts`."""
        return read_arrays(self.path / "snapshots" / f"{step}.npz")

    @property
    def warnings(self) -> list[str]:
        """What a reader of this run should know: an unusual end, numbers that did not converge."""
        found = [] if self.status in USUAL else [self.ending]
        flags = sorted({key for row in self.rows for key in row if key.endswith("_unconverged")})
        for key in flags:
            count = sum(bool(row.get(key)) for row in self.rows)
            name = key.removesuffix("_unconverged")
            found.append(f"{name} did not converge in {count} of {len(self.rows)} rows")
        return found

    def _repr_html_(self) -> str:
        """Show the run in a notebook."""
        return as_html(self)

    @property
    def ending(self) -> str:
        """The status in a sentence."""
        if self.damage:
            return f"unreadable: {'; '.join(self.damage)}"
        step, message = self.outcome.get("step"), self.outcome.get("message", "")
        return f"{self.status} at step {step}" + (f": {message}" if message else "")


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz; one of `DAMAGE` where it cannot be read."""
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


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


def as_float(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def find_runs(folder: str | Path) -> list[Run]:
    """Find the run folders in a folder, at any depth, sorted by path; the folder may be one."""
    return [Run(path) for path in sorted(run_folders(Path(folder)))]


def run_folders(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name the folder that holds the runs")
    if (folder / "metrics.jsonl").is_file() or (folder / "status.json").is_file():
        yield folder
        return
    for inner in folder.iterdir():
        if inner.is_dir() and not inner.is_symlink():
            yield from run_folders(inner)
