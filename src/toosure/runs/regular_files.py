"""Open regular files only: no pipe, device or folder, and none that is larger than allowed."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from toosure.sentences import size_text

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
Signature = tuple[int, int, int, int]  # inode, size, time of change, kind


NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # not known on Windows
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe is opened without waiting


class NotRegularError(ValueError):
    """A file of a run is not a regular file."""


def open_regular(path: Path, follow_links: bool = True, limit: int | None = None) -> BinaryIO:
    """Open a regular file to read; raise `NotRegularError` for pipes, devices and folders.

    Without `follow_links` a link is refused, too. Raise ValueError if the file has more than
    `limit` bytes.
    """
    status = os.stat(path, follow_symlinks=follow_links)
    if not stat.S_ISREG(status.st_mode):
        raise not_regular(status)

    # It may have been replaced since: it is looked at again once it is open.
    flags = os.O_RDONLY | NO_WAIT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if not follow_links:
        flags |= NO_LINK
    file = os.fdopen(os.open(path, flags), "rb")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise not_regular(status)
    if limit is not None and status.st_size > limit:
        file.close()
        raise ValueError(f"it has {size_text(status.st_size)}; at most {size_text(limit)} are read")
    return file


def open_plain(path: str | Path, flags: int) -> int:
    """Open a regular file as an `opener`; a link, a pipe or a device is an OSError."""
    place = os.open(path, flags | NO_LINK | NO_WAIT, 0o666)
    if not stat.S_ISREG(os.fstat(place).st_mode):
        os.close(place)
        raise OSError(errno.ELOOP, "not a plain file", str(path))
    return place


def not_regular(status: os.stat_result) -> NotRegularError:
    """Return the error that says what is there instead of a file."""
    kind = KINDS.get(stat.S_IFMT(status.st_mode), "no file")
    return NotRegularError(f"it is {kind}, not a file")


def read_regular(path: Path, limit: int, follow_links: bool = True) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    with open_regular(path, follow_links, limit) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it grew beyond {size_text(limit)} while it was read")
    return content


def signature(path: Path) -> Signature | None:
    """Return a tuple that changes when a file is rewritten; None if there is no file."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, stat.S_IFMT(status.st_mode)


def printable(name: str) -> str:
    r"""Return a file's name as printable text; bytes that are not UTF-8 are escaped.

    >>> printable("a\udcffb"), printable("a\nb"), printable("Größe")
    ('a\\xffb', 'a\\nb', 'Größe')
    """
    if name.isprintable():
        return name
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
