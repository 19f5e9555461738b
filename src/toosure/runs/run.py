"""Read a run folder, finished or growing, without torch and without a lock."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toosure.runs.array_file import READ_ERRORS, read_arrays
from toosure.runs.files import is_locked, numbered_files
from toosure.runs.json_text import read_json
from toosure.runs.notebook import as_html
from toosure.runs.regular_files import Signature, open_regular, printable, signature
from toosure.runs.row_reader import Row, RowReader
from toosure.runs.row_warnings import row_warnings
from toosure.runs.snapshot import check_snapshot
from toosure.runs.status import ENDED, USUAL, damaged_files
from toosure.runs.stored_folder import fetched_folder, is_claimed
from toosure.sentences import first_line

CACHED_FILES = {  # what was read of each file
    "config": "config",
    "environment": "environment",
    "status": "outcome",
    "temperature": "scaling",
    "calibrators": "calibrations",
    "shifts": "shifts",
    "examples": "examples",
}
SAME_EXAMPLES = (
    "its validation examples are its training examples: on those every network looks honest"
)


class Run:
    """Read a run folder: `config`, `environment`, `status`, `rows`, `columns`, `snapshots`.

    Files are read on demand and cached; `refresh` reads what was added since, new bytes only.
    `config` and `environment` are plain dictionaries, empty if the file is missing or damaged. `id`
    is unique below `root`. Without `follow_links`, files that are links are not read. A URL of a
    storage is fetched once, and `path` is then its copy.
    """

    def __init__(
        self, path: str | Path, root: Path | None = None, follow_links: bool = True
    ) -> None:
        self.path = fetched_folder(path) if ":/" in str(path) else Path(path)  # a URL of a storage
        if not self.path.is_dir():
            raise ValueError(f"{path} is not a run folder")
        self.follow_links = follow_links
        below = root is not None and self.path != root
        name = self.path.relative_to(root).as_posix() if below and root else self.path.name
        self.id = name if name.isprintable() else printable(name)
        self.name = self.id.rpartition("/")[2]
        self._snapshots: dict[int, dict[str, np.ndarray]] = {}
        self._signatures: dict[str, Signature | None] = {}
        self.unreadable_files: dict[str, str] = {}  # files of arrays, and why

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    # -- what was asked, where, and how it ended --------------------------------------------

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of the run."""
        return read_json(self.path / "config.json", self.follow_links, if_damaged={})

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where it ran: versions, device, commit, command."""
        return read_json(self.path / "environment.json", self.follow_links, if_damaged={})

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """How it ended: `status`, the `step` it reached, and a `message`."""
        return read_json(self.path / "status.json", self.follow_links, if_damaged={})

    @cached_property
    def scaling(self) -> dict[str, Any]:
        """What temperature scaling does to the run's predictions, written at its end."""
        return self._read_noting_damage("temperature.json")

    @cached_property
    def calibrations(self) -> dict[str, Any]:
        """The results of `toosure calibrate`, before and after, by calibrator."""
        return self._read_noting_damage("calibrators.json")

    @property
    def last_predictions(self) -> Path:
        """The file of its predictions at the end, which need not exist."""
        return self.path / "predictions.npz"

    @cached_property
    def shifts(self) -> dict[str, Any]:
        """How the run fares on corrupted and unknown data: see `toosure.shifts.record`."""
        return self._read_noting_damage("shifts.json")

    @cached_property
    def examples(self) -> dict[str, Any]:
        """How the watched examples of each split were drawn, with their hash; of own loops."""
        return self._read_noting_damage("examples.json")

    @property
    def validates_on_training_data(self) -> bool:
        """Whether the validation examples are the training examples, by their hashes."""
        notes = (self.examples.get(split) for split in ("train", "val"))
        one, other = (note.get("sha256") if isinstance(note, dict) else None for note in notes)
        return one is not None and one == other

    def _read_noting_damage(self, name: str) -> dict[str, Any]:
        """Read a file of the run; return {} and note the reason if it is damaged."""
        self.unreadable_files.pop(name, None)
        try:
            return read_json(self.path / name, self.follow_links)
        except ValueError as error:
            self.unreadable_files[name] = first_line(error)
        return {}

    @property
    def status(self) -> str:
        """One of running, complete, ended, diverged, stopped, failed; interrupted if killed.

        It is "unreadable" if a file of the run is damaged; the other files can still be read.
        """
        if self.damage:
            return "unreadable"
        status = self.outcome.get("status", "running")
        return "interrupted" if status == "running" and not self._is_written() else status

    def _is_written(self) -> bool:
        """Whether a process is writing the run now."""
        try:
            open_regular(self.path / "lock", self.follow_links).close()
        except (OSError, ValueError):
            return False  # opening a pipe would wait for ever
        return is_locked(self.path) or is_claimed(self.path)

    @property
    def ending(self) -> str:
        """The status in a sentence."""
        if self.damage:
            return f"unreadable: {'; '.join(self.damage)}"
        message = self.outcome.get("message", "")
        return f"{self.status} at step {self.step_reached}" + (f": {message}" if message else "")

    @property
    def step_reached(self) -> int | None:
        """The step that the run reached; of a killed run, according to its files."""
        noted: int | None = self.outcome.get("step")
        if self.status != "interrupted":
            return noted
        steps = [noted, self.last.get("step"), *numbered_files(self.path / "checkpoints", ".pt")]
        return max((step for step in steps if isinstance(step, int)), default=None)

    @property
    def damage(self) -> list[str]:
        """Which files of the run cannot be read, a sentence each."""
        problems = list(self._damaged_json)
        if self._reader.problem:
            rows = printable(str(self.path / "metrics.jsonl"))
            problems.append(f"{rows} cannot be read: {self._reader.problem}")
        return problems

    @cached_property
    def _damaged_json(self) -> list[str]:
        return damaged_files(self.path, self.follow_links)

    @property
    def warnings(self) -> list[str]:
        """Warnings: an unusual end, damage, numbers that did not converge."""
        warnings = [] if self.status in USUAL else [self.ending]
        for part in ("scaling", "calibrations", "shifts", "examples"):
            getattr(self, part)  # reading it shows whether it can be read
        unreadable = self.unreadable_files.items()
        warnings += [f"{name} cannot be read ({reason})" for name, reason in unreadable]
        if self.validates_on_training_data:
            warnings.append(SAME_EXAMPLES)
        return warnings + row_warnings(self.columns, self.last, self.status in ENDED)

    def _repr_html_(self) -> str:
        """Show the run in a notebook."""
        return as_html(self)

    # -- rows -------------------------------------------------------------------------------

    @cached_property
    def _reader(self) -> RowReader:
        reader = RowReader(self.path / "metrics.jsonl", self.follow_links)
        reader.refresh()
        return reader

    def take_reader(self, reader: RowReader) -> None:
        """Use the rows that another process has read."""
        self.__dict__["_reader"] = reader

    def refresh(self) -> bool:
        """Read what was added to the folder; return whether there were new rows."""
        for name, part in CACHED_FILES.items():
            now = signature(self.path / f"{name}.json")
            if now != self._signatures.get(name, ()):
                self._signatures[name] = now
                self.__dict__.pop(part, None)
                self.__dict__.pop("_damaged_json", None)

        if "_reader" not in self.__dict__:
            return self._reader.count > 0
        generation = self._reader.generation
        grown = self._reader.refresh()
        if self._reader.generation != generation:
            self._snapshots.clear()
            self.unreadable_files.clear()
        return grown

    @property
    def version(self) -> tuple[object, ...]:
        """A key that changes with anything a page shows of the run, as of the last `refresh`."""
        snapshots = signature(self.path / "snapshots")
        predictions = signature(self.last_predictions)
        files = tuple(self._signatures.items())
        rows = (*self.file_version, self.count, self._reader.problem)
        return self.id, self.status, files, rows, snapshots, predictions

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._reader.count

    @property
    def last(self) -> Row:
        """The latest measurement, empty before the first."""
        return self._reader.last

    @property
    def rows(self) -> list[Row]:
        """Every measurement in order, a torn last line left out."""
        return self._reader.rows

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Each key as an array of one value per row; NaN in rows without it."""
        return self._reader.columns

    @property
    def file_version(self) -> tuple[int, int]:
        """A key that changes when the rows are cut back or replaced."""
        return self._reader.inode, self._reader.generation

    def has(self, key: str) -> bool:
        """Whether some row has a finite number under a key."""
        values = self.columns.get(key)
        return values is not None and bool(np.isfinite(values).any())

    @property
    def split(self) -> str:
        """The split that judges: validation, if it was measured, else train."""
        return "val" if self.has("val/ece") else "train"

    @property
    def training_only(self) -> bool:
        """Whether the run was measured on training data only, so that it cannot be ranked."""
        if self.split == "val":
            return self.validates_on_training_data
        return any(key.startswith("train/") and self.has(key) for key in self.columns)

    # -- snapshots --------------------------------------------------------------------------

    @property
    def snapshots(self) -> list[int]:
        """The steps at which a snapshot was kept, in order."""
        folder = self.path / "snapshots"
        if folder.is_symlink() and not self.follow_links:
            self.unreadable_files["snapshots"] = "it is a link, not a folder"
            return []
        return numbered_files(folder, ".npz")

    def snapshot(self, step: int) -> dict[str, np.ndarray]:
        """Read the histograms and reliability bins of a step, by name such as `val_counts`."""
        return read_arrays(self.path / "snapshots" / f"{step}.npz", follow_links=False)

    def snapshot_if_whole(self, step: int) -> dict[str, np.ndarray]:
        """Read a snapshot once; empty if it is gone, or damaged (then `warnings` says so)."""
        if step not in self._snapshots:
            name = f"snapshots/{step}.npz"
            try:
                self._snapshots[step] = check_snapshot(self.snapshot(step))
            except FileNotFoundError:
                return {}
            except READ_ERRORS as error:
                self.unreadable_files[name] = first_line(error)
                return {}
            self.unreadable_files.pop(name, None)
        return self._snapshots[step]
