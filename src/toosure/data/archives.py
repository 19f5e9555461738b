"""Open .tar, .tar.gz and .zip files that strangers packed: plain files only, no more than said."""

import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from toosure.data.download import lock

DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError,
    LookupError, ArithmeticError,
)  # fmt: skip
BLOCK = 1 << 20


class Member(NamedTuple):
    """One file of an archive, to be read before the next is asked for."""

    name: str
    size: int
    stream: IO[bytes]


class Refused(ValueError):
    """An archive holds what no data set needs."""


class Limited:
    """Read a stream up to a limit: neither padding nor giant headers can fill the memory."""

    def __init__(self, stream: Any, limit: int) -> None:
        self.stream, self.left, self.end = stream, limit, b""

    def read(self, count: int) -> bytes:
        block = self.stream.read(min(count, self.left + 1))
        self.left -= len(block)
        if self.left < 0:
            raise Refused("it holds far more than the data set")
        self.end = (self.end + block)[-1024:]
        return block


@contextmanager
def named(archive: Path) -> Iterator[None]:
    """Name the archive in whatever goes wrong while it is read."""
    try:
        yield
    except Refused as error:
        raise Refused(f"{archive} is refused: {error}") from error
    except DAMAGE as error:
        if getattr(error, "errno", None):  # the system's word: a full disk, no permission
            raise ValueError(f"{archive} cannot be unpacked: {error}") from error
        raise ValueError(
            f"{archive} is damaged or cut short: {error}; move it away and fetch it again"
        ) from error


def members(archive: Path, limit: int) -> Iterator[Member]:
    """Go through the plain files of an archive, in order; raise at anything else.

    Names that lead elsewhere, links, devices, encrypted or repeated members, and more than
    `limit` bytes in all, said or found, are refused. Use it inside `with named(archive)`, and to
    the end: only there is the checksum of a .gz, and nothing read before is sure until then.
    """
    inside = zip_members(archive) if zipfile.is_zipfile(archive) else tar_members(archive, limit)
    seen: set[PurePosixPath] = set()
    total = 0
    for member in inside:
        total += member.size
        if total > limit:
            raise Refused(f"it claims {total:,} bytes or more, and {limit:,} are plenty")
        if (name := PurePosixPath(member.name)) in seen:
            raise Refused(f"it holds {name} twice")
        seen.add(name)
        yield member


def tar_members(archive: Path, limit: int) -> Iterator[Member]:
    with open(archive, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        plain: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        # Headers and padding come on top of the content: half as much again, and a little.
        limited: Any = Limited(plain, limit + limit // 2 + (1 << 20))
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for member in tar:
                check_name(member.name)
                if member.isdir():
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise Refused(f"{member.name} is no plain file but a link or a device")
                yield Member(member.name, member.size, tar.extractfile(member))  # type: ignore[arg-type]
            if limited.end != bytes(1024):  # a whole archive ends with two empty blocks
                raise EOFError("its end is missing")
            while limited.read(BLOCK):  # gzip's checksum comes last of all
                pass


def zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            check_name(member.filename)
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG) or member.flag_bits & 1:
                raise Refused(f"{member.filename} is a link, a device or encrypted")
            with packed.open(member) as stream:
                yield Member(member.filename, member.file_size, stream)


def check_name(name: str) -> None:
    """Refuse a name that leads out of the folder, here or on another system."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name or not path.parts:
        raise Refused(f"{name!r} leads out of its folder")


def unpack(archive: Path, folder: Path, limit: int) -> Path:
    """Unpack the archive of one folder beside it, then rename: all of it appears, or nothing.

    `folder` is where it goes, its name that of the archive's one top folder; `limit` bounds the
    bytes in all. What a killed process left is cleared away by the next.
    """
    beside = folder.with_name(f".{folder.name}.unpacking")
    with alone(archive):
        if taken(folder):
            raise ValueError(f"{folder} is there already: move it away to unpack {archive} again")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            with named(archive):
                fill(beside, folder.name, members(archive, limit))
                if folder.exists():
                    folder.rmdir()
                (beside / folder.name).rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return folder


@contextmanager
def alone(archive: Path) -> Iterator[None]:
    """Let no other process unpack the same archive meanwhile."""
    with named(archive):
        held = open(archive, "rb")  # noqa: SIM115 - what follows has errors of its own
    with held:
        lock(held, f"unpacking {archive}")
        yield


def fill(beside: Path, top: str, inside: Iterator[Member]) -> None:
    """Write an archive's files, all of them below one folder."""
    beside.mkdir()
    for member in inside:
        if PurePosixPath(member.name).parts[0] != top:
            raise Refused(f"{member.name} is not in {top}/")
        write(member, beside / member.name)
    if not (beside / top).is_dir():
        raise ValueError(f"it holds no {top}/")


def taken(folder: Path) -> bool:
    """Say whether something is there already; an empty folder is nothing."""
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def write(member: Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as out:
        for block in blocks(member):
            out.write(block)


def blocks(member: Member) -> Iterator[bytes]:
    """Read a member, and raise where it holds more or less than it claims."""
    read = 0
    while block := member.stream.read(BLOCK):
        read += len(block)
        yield block
    if read != member.size:
        raise EOFError(f"{member.name} ends after {read:,} of {member.size:,} bytes")
