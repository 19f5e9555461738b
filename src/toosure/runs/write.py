"""The one writer of a run folder: rows appended and flushed, everything else renamed into place."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from toosure.finite import json_ready
from toosure.runs.files import (
    delete_leftovers,
    sync_folder,
    take_lock,
    write_arrays,
    write_atomically,
    write_json,
)
from toosure.runs.json_text import read_json
from toosure.runs.row_reader import as_row
from toosure.runs.rows_digest import RowsDigest, digest_of
from toosure.runs.storage import StorageError, as_url
from toosure.runs.stored_folder import StoredFolder

FINISHED = ("complete", "diverged")


class RunError(ValueError):
    """A run cannot go on; the message says what to do, and its folder is unchanged."""


class RunWriter:
    """Write a run folder. Make it in a `with` block, or call `close`, to let others write.

    A folder that holds another `config` is refused, so that nothing is overwritten. An error of the
    disk becomes a RunError that names the folder and what to do.

    The path may be a URL (`stored_folder.py`): the run is then written in a working folder, `path`,
    and uploaded with every checkpoint and every status, and when the writer is closed.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any] | None = None) -> None:
        url = as_url(path)
        self.stored = None if url is None else StoredFolder(url)
        self.path = Path(path) if self.stored is None else self.stored.folder
        with self.writing("cannot be made"):
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock = take_lock(self.path)

        if self.lock is None:
            owner = (self.path / "lock").read_text().strip()
            if owner == str(os.getpid()):
                raise RunError(
                    f"{self.path} is held by an earlier Watch or RunWriter of this process: "
                    "call its close(), or name another folder"
                )
            raise RunError(
                f"{self.path} is being written by process {owner}: wait for it, or end it; "
                "the run goes on from its checkpoint when you repeat the command"
            )

        self.rows: BinaryIO | None = None
        self.digest = RowsDigest()  # of the rows, while they are open
        try:
            if self.stored is not None:
                with self.writing():
                    self.stored.open()
            for folder in (self.path, self.path / "checkpoints", self.path / "snapshots"):
                delete_leftovers(folder)
            self._claim(config)
        except BaseException:
            self.close()
            raise

    def _claim(self, config: Mapping[str, Any] | None) -> None:
        """Write the config of a new folder, or compare it with the one that is there."""
        if config is None:
            return
        new = json.loads(json.dumps(json_ready(config), default=path_as_text))
        old = read_json(self.path / "config.json")
        # A setting that did not exist when a run began counts as not given.
        differ = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if old and differ:
            raise RunError(f"{self.path} holds another run: it differs in {', '.join(differ)}")
        if not old:
            self.write_json("config.json", new)

    @contextmanager
    def writing(self, problem: str = "cannot be written") -> Iterator[None]:
        """Turn an error of the disk or of a storage into one sentence that says what to do."""
        try:
            yield
        except OSError as error:
            raise self.disk_error(error, problem) from error
        except StorageError as error:
            raise RunError(str(error)) from error

    def disk_error(self, error: OSError, problem: str = "cannot be written") -> RunError:
        """Return an error of the disk as one sentence that says what to do."""
        return RunError(
            f"{self.path} {problem} ({error.strerror or error}): make room or name another "
            "folder, then repeat the command; what was written before is kept"
        )

    @property
    def outcome(self) -> dict[str, Any]:
        return read_json(self.path / "status.json")

    @property
    def finished(self) -> bool:
        """Whether the run has ended for good."""
        return self.outcome.get("status") in FINISHED

    def set_status(self, status: str, step: int, message: str = "") -> None:
        """Write the status of the run."""
        self.write_json("status.json", {"status": status, "step": step, "message": message})
        self.upload()

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Write where a run began; a run that resumes elsewhere adds what differs there."""
        first = read_json(self.path / "environment.json")
        if first:
            differ = {k: v for k, v in environment.items() if first.get(k) != v}
            environment = {**first, "resumed": [*first.get("resumed", []), differ]}
        self.write_json("environment.json", environment)

    # -- rows -------------------------------------------------------------------------------

    @property
    def has_rows(self) -> bool:
        file = self.path / "metrics.jsonl"
        return file.is_file() and file.stat().st_size > 0

    def cut_back(self, step: int) -> None:
        """Drop the rows and snapshots after a step, and a torn line; earlier ones are unchanged.

        For a step below 0 everything is dropped.
        """
        file = self.path / "metrics.jsonl"
        self._close_rows()  # the next row is appended to the new file
        with self.writing():
            if file.is_file():
                lines = file.read_bytes().splitlines(keepends=True)
                kept = [ln for ln in lines if ln.endswith(b"\n") and is_before(ln, step)]
                if len(kept) < len(lines):
                    write_atomically(file, lambda out: out.writelines(kept))
            for snapshot in (self.path / "snapshots").glob("*.npz"):
                if snapshot.stem.isdigit() and int(snapshot.stem) > step:
                    snapshot.unlink()

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row and flush it at once."""
        if self.lock is None:
            raise RunError(f"{self.path} was closed: nothing can be added to its rows")
        try:
            line = json.dumps(row, allow_nan=False)
        except (TypeError, ValueError):  # numbers of torch's, or not finite
            line = json.dumps(json_ready(row), allow_nan=False)

        data = line.encode() + b"\n"
        try:
            rows = self.rows or self._open_rows()
            if rows.write(data) != len(data):  # a full disk may take only a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self.disk_error(error) from error
        self.digest.count += 1
        self.digest.size += len(data)
        self.digest.hash.update(data)

    def _open_rows(self) -> BinaryIO:
        """Open the rows to append to them, and hash the existing ones."""
        if self.rows is None:
            file = self.path / "metrics.jsonl"
            self.digest = digest_of(file)
            self.rows = open(file, "ab", buffering=0)  # noqa: SIM115 (kept open)
        return self.rows

    def _close_rows(self) -> None:
        if self.rows is not None:
            self.rows.close()
            self.rows = None

    def sync_rows(self) -> dict[str, Any]:
        """Sync all rows to disk, and return their count and hash (see `RowsDigest`).

        Call it before a checkpoint: after a power cut the rows that it needs are then there.
        """
        if not self.has_rows:
            return RowsDigest().as_dict()
        with self.writing():
            os.fsync(self._open_rows().fileno())
            sync_folder(self.path)
        return self.digest.as_dict()

    def write_snapshot(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the snapshot of a step."""
        self.write_arrays(f"snapshots/{step}.npz", arrays, compressed=True)

    def write_file(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        """Write a file of the folder, whole or not at all."""
        with self.writing():
            write_atomically(self.path / name, write)
        if name.startswith("checkpoints/"):
            self.upload()

    def append_to_file(self, name: str, data: bytes) -> None:
        """Append to a file of the folder; a kill may leave a part of the data."""
        with self.writing(), (self.path / name).open("ab") as file:
            file.write(data)

    def write_json(self, name: str, value: Any) -> None:
        """Write a file of JSON, whole or not at all."""
        with self.writing():
            write_json(self.path / name, value)

    def write_arrays(self, name: str, arrays: Mapping[str, Any], compressed: bool = False) -> None:
        """Write an .npz of arrays by name, whole or not at all."""
        with self.writing():
            write_arrays(self.path / name, arrays, compressed)

    def upload(self) -> None:
        """Upload what changed, where the folder is in a storage."""
        if self.stored is not None:
            with self.writing():
                self.stored.upload()

    def close(self) -> None:
        """Release the folder."""
        self._close_rows()
        if self.lock is None:
            return
        try:
            if self.stored is not None:
                with self.writing():
                    self.stored.close()
        finally:
            self.lock.close()
            self.lock = None

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def path_as_text(value: object) -> str:
    """Return a path in a config as text; raise for what JSON cannot hold."""
    if isinstance(value, os.PathLike):
        return str(value)
    raise RunError(f"config holds {value!r}, which JSON cannot: write it as text, str(...)")


def is_before(line: bytes, step: int) -> bool:
    row = as_row(line)
    return row is not None and row["step"] <= step
