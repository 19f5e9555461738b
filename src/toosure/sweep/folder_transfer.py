"""Transfer a run folder between machines: pack the files that changed, and write them elsewhere.

A run can continue from a checkpoint only if all rows up to its step are there. So checkpoints are
read before the rows, and written after them: the run can continue wherever a transfer breaks off.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from toosure.runs.files import write_atomically
from toosure.runs.storage import file_names


@dataclass
class Package:
    """The names of all files of a folder, and the content of those that changed."""

    names: list[str] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass
class FolderPacker:
    """Pack what changed in a folder since the last time."""

    folder: Path
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and size when packed

    def pack(self) -> Package:
        """Read the files that changed; a file that vanishes meanwhile is skipped."""
        names = file_names(self.folder)
        checkpoints = [name for name in names if name.startswith("checkpoints/")]
        status = [name for name in names if name == "status.json"]
        others = [name for name in names if name not in (*checkpoints, *status)]

        # Rows are read last, so that they cover every checkpoint.
        checkpoint_files = list(self.read(checkpoints))
        other_files = list(self.read(others))
        status_files = list(self.read(status))
        return Package(names, other_files + checkpoint_files + status_files)

    def read(self, names: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the files that changed, with their content."""
        for name in names:
            with suppress(FileNotFoundError):
                path = self.folder / name
                stat = path.stat()
                stamp = (stat.st_mtime_ns, stat.st_size)
                if self.stamps.get(name) != stamp:
                    yield name, path.read_bytes()
                    self.stamps[name] = stamp


def unpack(package: Package, folder: Path) -> None:
    """Write a package into a folder; delete checkpoints and snapshots that the sender deleted."""
    for name, content in package.files:
        write_atomically(folder / name, partial(write, content))
    for name in set(file_names(folder)) - set(package.names):
        if name.startswith(("checkpoints/", "snapshots/")):
            (folder / name).unlink(missing_ok=True)


def write(content: bytes, file: BinaryIO) -> None:
    file.write(content)
