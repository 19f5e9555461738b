"""Write files that survive a crash, beside their target and then renamed; lock a folder."""

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np

from toosure.finite import json_ready
from toosure.runs.regular_files import NO_LINK, open_plain

try:
    import fcntl
except ImportError:  # Windows has no such lock: two writers are not noticed there
    fcntl = None  # type: ignore[assignment]

HELD: WeakSet[BinaryIO] = WeakSet()  # locks of this process, which forked children must close


BINARY = getattr(os, "O_BINARY", 0)  # known on Windows only
NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")  # of a step, in the name of a file
# Beginnings of the names of files that a run writes into its folder.
WRITTEN_BY_RUNS = ("predictions", "best.", "config.", "metrics.", "status.", "environment.")


def check_target(path: Path, *read: Path | None) -> None:
    """Raise before the work if a file cannot be written, or is one of the input files `read`.

    Missing folders will be made.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    if path.exists() and any(each and is_part_of(path, each) for each in read):
        raise ValueError(f"{path} is an input file: choose another output")
    if not path.exists():
        check_folder(path.parent)
    elif not os.access(path, os.W_OK):
        raise ValueError(f"{path}: cannot be written (no permission): name another file")


def is_part_of(path: Path, read: Path) -> bool:
    """Whether a file is the input, or one that a run wrote into the folder that is the input."""
    if not read.is_dir():
        return read.exists() and path.samefile(read)
    return path.parent.samefile(read) and path.name.startswith(WRITTEN_BY_RUNS)


def check_folder(folder: Path) -> None:
    """Raise before the work if a folder cannot be made or written into."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file, not a folder: name another place")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{nearest}: cannot be written into (no permission): name another place")


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a file beside `path`, and rename it into place once it is on disk.

    If anything fails, the old file is still there, and no part of a new one. Several writers at
    once each fill their own file, and the last to rename wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file, beside = open_beside(path)

    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # renamed while it is locked: nobody takes it for a leftover
                os.replace(beside, path)
        if fcntl is None:
            os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_beside(path: Path) -> tuple[BinaryIO, Path]:
    """Make a new file beside `path` under an unused name, and lock it while it is filled.

    A link under that name is not followed (O_EXCL).
    """
    while True:
        beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}.part")
        try:
            place = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY | NO_LINK, 0o666)
        except FileExistsError:
            continue
        file = os.fdopen(place, "wb")
        if fcntl is None:
            return file, beside

        # If `delete_leftovers` came before our lock, the file is gone: make another.
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(place).st_nlink > 0:
            return file, beside
        file.close()


def delete_leftovers(folder: Path) -> None:
    """Delete half-written files of writers that died, and whose locks are therefore free."""
    if fcntl is None:
        return
    for path in folder.glob(".*.part"):
        with suppress(OSError), open(path, "rb", opener=open_plain) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        if path.is_symlink():  # never one of ours
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut, if the system supports it."""
    if os.name != "posix":
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON for people, whole or not at all; what is not finite is null."""
    text = json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def write_arrays(path: Path, arrays: Mapping[str, Any], compressed: bool = False) -> None:
    """Write an .npz of arrays by name, whole or not at all."""
    save = np.savez_compressed if compressed else np.savez
    write_atomically(path, lambda file: save(file, **arrays))


def take_lock(folder: Path) -> BinaryIO | None:
    """Become the one writer of a folder; return None if another process is.

    The system frees the lock when the process ends, however it ends.
    """
    path = folder / "lock"
    try:
        file = open(path, "ab", opener=open_plain)  # noqa: SIM115 (kept open: closing it lets go)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise ValueError(
            f"{path} is a link or not a regular file, so nothing is written to it: delete it, then "
            "repeat the command"
        ) from error

    if fcntl is None:
        return file
    if not lock_exclusively(file):
        file.close()
        return None
    file.truncate(0)
    file.write(f"{os.getpid()}\n".encode())
    file.flush()
    HELD.add(file)
    return file


def lock_exclusively(file: BinaryIO) -> bool:
    """Lock a file against every other process; return False if another writer has it.

    A reader that calls `is_locked` holds the lock for a moment, which may be long on a busy
    machine. Readers share the lock, a writer does not; so readers are told apart, and waited for.
    """
    patience = [0.05, 0.1, 0.2]  # seconds to wait for a writer that may be about to end
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass

        # A reader would share the lock, a writer would not.
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.01)
        except BlockingIOError:
            if not patience:
                return False
            time.sleep(patience.pop(0))


def close_inherited_locks() -> None:
    """Close the parent's locks in a forked child, such as one that decodes images."""
    for file in list(HELD):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_inherited_locks)


def is_locked(folder: Path) -> bool:
    """Whether a process is writing into the folder now."""
    try:
        with open(folder / "lock", "rb", opener=open_plain) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def numbered_files(folder: Path, ending: str) -> list[int]:
    """Return the numbers that name a folder's files, such as 20 of 20.npz, in order."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    stems = [name.removesuffix(ending) for name in names if name.endswith(ending)]
    return sorted(int(stem) for stem in stems if NUMBER.fullmatch(stem))
