"""A run read as it grows: only new bytes, only the columns that pages draw, without torch."""

from array import array
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from toosure.runs import Run, find_runs
from toosure.runs.read import DAMAGE, USUAL, Row, as_float, as_row

QUANTITIES = (
    *("loss", "accuracy", "confidence", "ece", "smece", "nll"),
    *("gn_sharpness", "margin_q01", "temperature", "refinement"),
)
KEPT = (
    *("step", "lr", "seconds", "seconds_measuring"),
    *(f"{split}/{name}" for split in ("train", "val") for name in QUANTITIES),
)
IN_SNAPSHOT = (
    *("edges", "counts", "accuracy", "confidence", "interval"),
    *("margin_edges", "margin_counts"),
)
BATCH = 2000  # rows parsed before they are put into columns


class FollowedRun:
    """Follow a run folder: `read` takes in what was added; figures read it as they read a `Run`.

    Its memory is that of the columns, whatever else the rows hold. A file that was cut back or
    replaced is read again from the start, and `generation` says that this happened.
    """

    def __init__(self, path: Path, root: Path | None = None) -> None:
        self.path = path
        self.id = path.relative_to(root).as_posix() if root and path != root else path.name
        self.generation = 0
        self._forget()

    def _forget(self) -> None:
        self.offset, self.inode = 0, -1
        self.count = 0
        self.last: dict[str, Any] = {}
        self.unconverged: Counter[str] = Counter()
        self._lists = {key: array("d") for key in KEPT}
        self._columns: dict[str, np.ndarray] | None = None
        self._frames: dict[int, dict[str, np.ndarray]] = {}
        self._files: dict[str, dict[str, Any]] = {}
        self.damaged: dict[str, str] = {}  # files of arrays that could not be read, and why

    def read(self) -> bool:
        """Take in new rows; say whether there were any. A torn last line waits for its end."""
        file = self.path / "metrics.jsonl"
        try:
            found = file.stat()
        except FileNotFoundError:
            return False
        if found.st_size < self.offset or (self.offset and found.st_ino != self.inode):
            self._forget()
            self.generation += 1
        self.inode, before = found.st_ino, self.count
        if found.st_size > self.offset:
            with file.open("rb") as lines:
                lines.seek(self.offset)
                while rows := self._next_rows(lines):
                    self._take(rows)
        return self.count > before

    def _next_rows(self, lines: BinaryIO) -> list[Row]:
        """Parse up to `BATCH` whole lines, and move on past them."""
        rows: list[Row] = []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self.offset += len(line)
            row = as_row(line)
            if row is None:
                continue
            rows.append(row)
            if b"_unconverged" in line:
                flags = (key for key in row if key.endswith("_unconverged") and row[key])
                self.unconverged.update(key.removesuffix("_unconverged") for key in flags)
            if len(rows) == BATCH:
                break
        return rows

    def _take(self, rows: list[Row]) -> None:
        """Add parsed rows to the columns."""
        for key, values in self._lists.items():
            values.extend(
                [value if type(value := row.get(key)) is float else as_float(value) for row in rows]
            )
        self.last = rows[-1]
        self.count += len(rows)
        self._columns = None

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Each kept key that has a value somewhere, as an array of one value a row."""
        if self._columns is None:
            arrays = {key: np.array(values) for key, values in self._lists.items()}
            self._columns = {
                key: values
                for key, values in arrays.items()
                if key == "step" or np.isfinite(values).any()
            }
        return self._columns

    @property
    def run(self) -> Run:
        """The folder as it is now."""
        return Run(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        return self._json("config")

    @property
    def environment(self) -> dict[str, Any]:
        return self._json("environment")

    @property
    def status(self) -> str:
        return self.run.status

    def _json(self, name: str) -> dict[str, Any]:
        """Read a small file of the folder once; a damaged one is empty and told by `warnings`."""
        if not self._files.get(name):
            self._files[name] = getattr(self.run, name)
        return self._files[name]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know: an unusual end, damage, numbers that did not converge."""
        run = self.run
        found = list(run.damage)
        found += [f"{name} cannot be read ({reason})" for name, reason in self.damaged.items()]
        if run.status not in (*USUAL, "unreadable"):
            found.append(run.ending)
        if self.count == 0:
            found.append("no rows yet")
        for name, count in sorted(self.unconverged.items()):
            found.append(f"{name} did not converge in {count:,} of {self.count:,} rows")
        return found

    @property
    def snapshots(self) -> list[int]:
        return self.run.snapshots

    def snapshot(self, step: int) -> dict[str, np.ndarray]:
        """Read a snapshot once; one that is damaged, which `warnings` tells, or gone is empty."""
        if step not in self._frames:
            name = f"snapshots/{step}.npz"
            if (self.path / name).is_symlink():
                return {}
            try:
                self._frames[step] = checked(self.run.snapshot(step))
            except FileNotFoundError:
                return {}
            except DAMAGE as error:
                self.damaged[name] = reason_of(error)
                return {}
            self.damaged.pop(name, None)
        return self._frames[step]

    @property
    def split(self) -> str:
        """The split that judges: validation where it was measured."""
        return "val" if "val/ece" in self.columns else "train"


def checked(snapshot: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a snapshot whose splits have all that the pages draw, or raise."""
    for split in ("train", "val"):
        if f"{split}_counts" in snapshot:
            parts = {name: snapshot[f"{split}_{name}"] for name in IN_SNAPSHOT}
            bins, bars = len(parts["counts"]), len(parts["margin_counts"])
            shapes = [parts[name].shape for name in IN_SNAPSHOT]
            wanted = [(bins + 1,), *[(bins,)] * 3, (bins, 2), (bars + 1,), (bars,)]
            if shapes != wanted:
                raise ValueError(f"the arrays of {split} do not fit each other")
    return snapshot


def reason_of(error: Exception) -> str:
    """Return the first line of what went wrong."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def follow(folder: str | Path) -> list[FollowedRun]:
    """Find the runs of a folder and read them to their end."""
    root = Path(folder)
    found = [FollowedRun(run.path, root) for run in find_runs(root)]
    for run in found:
        run.read()
    return found
