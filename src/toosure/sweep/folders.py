"""A run folder that travels: what changed since it was last packed, and how to place that.

A run goes on from a checkpoint only if all rows up to its step are there. So checkpoints are read
before the rows, and placed after them: wherever a journey ends, what has arrived can go on.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from toosure.runs.files import write_atomically

Files = list[tuple[str, bytes]]


@dataclass
class Load:
    """What travels: the names of all files of a folder, and the content of those that changed."""

    names: list[str] = field(default_factory=list)
    files: Files = field(default_factory=list)


@dataclass
class Packer:
    """Pack what changed in a folder since the last time."""

    folder: Path
    known: dict[str, tuple[int, int]] = field(default_factory=dict)

    def pack(self) -> Load:
        """Read what changed; a file that vanishes meanwhile is left out."""
        found = names_in(self.folder)
        saved = [name for name in found if name.startswith("checkpoints/")]
        others = [name for name in found if name not in saved and name != "status.json"]
        status = [name for name in found if name == "status.json"]
        first, then, last = (list(self.read(names)) for names in (saved, others, status))
        return Load(found, then + first + last)

    def read(self, names: Iterable[str]) -> Iterable[tuple[str, bytes]]:
        for name in names:
            with suppress(FileNotFoundError):
                path = self.folder / name
                stat = path.stat()
                stamp = (stat.st_mtime_ns, stat.st_size)
                if self.known.get(name) != stamp:
                    yield name, path.read_bytes()
                    self.known[name] = stamp


def place(load: Load, folder: Path) -> None:
    """Write what came into a folder, and drop checkpoints and snapshots the other dropped."""
    for name, content in load.files:
        write_atomically(folder / name, partial(write, content))
    for name in set(names_in(folder)) - set(load.names):
        if name.startswith(("checkpoints/", "snapshots/")):
            (folder / name).unlink(missing_ok=True)


def write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def names_in(folder: Path) -> list[str]:
    """Return the files of a run folder that belong to the run: no locks, nothing half written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in paths if path.name != "lock" and not path.name.startswith(".")]
    return [path.relative_to(folder).as_posix() for path in kept]
