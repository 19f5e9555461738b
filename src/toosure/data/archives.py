"""Open untrusted .tar, .tar.gz and .zip files: regular files only, up to a limit of size."""

import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple, cast

from toosure.data.download import lock_file

# Whatever reading a damaged archive may raise.
DAMAGE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    ArithmeticError,
)
BLOCK = 1 << 20  # bytes read at once
GZIP_MAGIC = b"\x1f\x8b"
TAR_END = bytes(1024)  # a whole tar archive ends with two empty blocks


class Member(NamedTuple):
    """One file of an archive; read its stream before asking for the next member."""

    name: str
    size: int
    stream: IO[bytes]


class Refused(ValueError):
    """An archive holds something that no data set needs."""


class LimitedReader:
    """Read a stream up to a limit, so that neither padding nor giant headers fill the memory."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self.stream = stream
        self.remaining = limit
        self.last_bytes = b""

    def read(self, count: int) -> bytes:
        block = self.stream.read(min(count, self.remaining + 1))
        self.remaining -= len(block)
        if self.remaining < 0:
            raise Refused("it holds far more than the data set")
        self.last_bytes = (self.last_bytes + block)[-len(TAR_END) :]
        return block


@contextmanager
def errors_name(archive: Path) -> Iterator[None]:
    """Name the archive in every error that reading it raises."""
    try:
        yield
    except Refused as error:
        raise Refused(f"{archive} is refused: {error}") from error
    except DAMAGE_ERRORS as error:
        # An error number comes from the operating system: a full disk, no permission.
        if getattr(error, "errno", None):
            raise ValueError(f"{archive} cannot be unpacked: {error}") from error
        raise ValueError(
            f"{archive} is damaged or cut short: {error}; move it away and fetch it again"
        ) from error


def members(archive: Path, limit: int) -> Iterator[Member]:
    """Yield the plain files of an archive, in order; raise `Refused` at anything else.

    Names that lead out of the folder, links, devices, encrypted or repeated members are refused,
    and more than `limit` bytes in all, claimed or found. Use it inside `with errors_name(archive)`,
    and exhaust it: the checksum of a .gz comes last, and verifies all members.
    """
    is_zip = zipfile.is_zipfile(archive)
    candidates = zip_members(archive) if is_zip else tar_members(archive, limit)
    seen: set[PurePosixPath] = set()
    total = 0
    for member in candidates:
        total += member.size
        if total > limit:
            raise Refused(f"it claims {total:,} bytes or more, and {limit:,} are plenty")

        name = PurePosixPath(member.name)
        if name in seen:
            raise Refused(f"it holds {name} twice")
        seen.add(name)
        yield member


def tar_members(archive: Path, limit: int) -> Iterator[Member]:
    """Yield the plain files of a .tar or .tar.gz, and check that the archive is complete."""
    with open(archive, "rb") as raw:
        compressed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        plain = cast(BinaryIO, gzip.GzipFile(fileobj=raw) if compressed else raw)

        # Headers and padding come on top of the content: half as much again, and a little.
        limited = LimitedReader(plain, limit + limit // 2 + (1 << 20))
        with tarfile.open(fileobj=cast(BinaryIO, limited), mode="r|") as tar:
            for member in tar:
                check_name(member.name)
                if member.isdir():
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise Refused(f"{member.name} is a link or a device, not a file")
                content = tar.extractfile(member)
                assert content is not None  # it is a plain file
                yield Member(member.name, member.size, content)

            if limited.last_bytes != TAR_END:
                raise EOFError("its end is missing")
            while limited.read(BLOCK):  # gzip's checksum comes last of all
                pass


def zip_members(archive: Path) -> Iterator[Member]:
    """Yield the plain files of a .zip."""
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            check_name(member.filename)
            if member.is_dir():
                continue
            file_type = stat.S_IFMT(member.external_attr >> 16)
            encrypted = member.flag_bits & 1
            if file_type not in (0, stat.S_IFREG) or encrypted:
                raise Refused(f"{member.filename} is a link, a device or encrypted")
            with packed.open(member) as stream:
                yield Member(member.filename, member.file_size, stream)


def check_name(name: str) -> None:
    """Refuse a name that leads out of the folder, on this system or on another."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name or not path.parts:
        raise Refused(f"{name!r} leads out of its folder")


def unpack(archive: Path, folder: Path, limit: int) -> Path:
    """Unpack an archive of one folder beside its target, then rename it: everything or nothing.

    `folder` is the target, named like the archive's single top folder. `limit` bounds the number of
    bytes. Leftovers of a killed process are deleted first.
    """
    temporary = folder.with_name(f".{folder.name}.unpacking")
    with locked(archive):
        if is_occupied(folder):
            raise ValueError(f"{folder} is there already: move it away to unpack {archive} again")

        shutil.rmtree(temporary, ignore_errors=True)
        try:
            with errors_name(archive):
                write_members(temporary, folder.name, members(archive, limit))
                if folder.exists():
                    folder.rmdir()
                (temporary / folder.name).rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


@contextmanager
def locked(archive: Path) -> Iterator[None]:
    """Keep other processes from unpacking the same archive meanwhile."""
    # Only opening it is a fault of the archive; the body of the `with` names its own errors.
    with errors_name(archive):
        file = open(archive, "rb")  # noqa: SIM115 - closed below
    with file:
        lock_file(file, f"unpacking {archive}")
        yield


def write_members(target: Path, top: str, files: Iterator[Member]) -> None:
    """Write an archive's files below `target`; all must be inside the one folder `top`."""
    target.mkdir()
    for member in files:
        if PurePosixPath(member.name).parts[0] != top:
            raise Refused(f"{member.name} is not in {top}/")
        write_member(member, target / member.name)
    if not (target / top).is_dir():
        raise ValueError(f"it holds no {top}/")


def is_occupied(folder: Path) -> bool:
    """Return whether something is there already; an empty folder does not count."""
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def write_member(member: Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as out:
        for block in read_blocks(member):
            out.write(block)


def read_blocks(member: Member) -> Iterator[bytes]:
    """Read a member in blocks; raise if it is shorter or longer than it claims."""
    read = 0
    while block := member.stream.read(BLOCK):
        read += len(block)
        yield block
    if read != member.size:
        raise EOFError(f"{member.name} ends after {read:,} of {member.size:,} bytes")
