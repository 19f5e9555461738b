"""Fetch a file only when asked, go on where it broke off, and install it whole or not at all."""

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

BLOCK = 1 << 20
Tell = Callable[[int, int | None], None]  # bytes here, bytes in all where that is known


def checksum(path: Path, kind: str = "sha256") -> str:
    """Return a file's checksum with its kind, as in sha256:9f86d0..."""
    with open(path, "rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def check(path: Path, digest: str, size: int | None = None) -> None:
    """Raise if a file is not the published one; `digest` is md5:... or sha256:..."""
    here = path.stat().st_size
    if size is not None and here != size:
        raise ValueError(f"{path} has {here:,} bytes, not {size:,}: cut short, or another file")
    kind = digest.partition(":")[0]
    if (came := checksum(path, kind)) != digest:
        raise ValueError(f"{path} is damaged or another file: {came}, published {digest}")


def part_of(target: Path) -> Path:
    """Return where a file lies while it is fetched."""
    return target.with_name(f".{target.name}.part")


def fetch(
    url: str, target: Path, digest: str, size: int | None = None, tell: Tell | None = None
) -> Path:
    """Download `url` beside `target`, compare size and checksum, and rename it into place.

    What has come lies in `.NAME.part` until then; a broken download goes on from there when asked
    again, where the server can. A file that is not the published one is deleted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = Path(folder, "source")
    ...     _ = source.write_bytes(b"data")
    ...     fetch(source.as_uri(), Path(folder, "copy"), checksum(source)).read_bytes()
    b'data'
    """
    part = part_of(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as out:
            lock(out, f"downloading {target}")
            copy(url, out, size, tell or (lambda here, total: None))
            out.flush()
            keep_published(url, out, target, digest, size)  # while nobody else writes to it
    except OSError as error:
        raise ValueError(f"cannot write to {target.parent}: {error}; nothing came") from error
    finally:
        if part.is_file() and not part.stat().st_size:
            part.unlink()
    os.replace(part, target)
    return target


def keep_published(
    url: str, out: BinaryIO, target: Path, digest: str, size: int | None = None
) -> None:
    """Raise if what has come is not the published file, and empty it."""
    try:
        check(Path(out.name), digest, size)
    except ValueError as error:
        out.truncate(0)
        raise ValueError(
            f"{url} sent something else, and nothing was installed: {error}. Try again, or put "
            f"{target.name} into {target.parent} yourself"
        ) from error


def lock(file: BinaryIO, what: str) -> None:
    """Keep two processes from doing the same until the file is closed, where the system can."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(f"another process is {what}: wait for it") from error
    except OSError:  # a file system without locks
        return


def copy(url: str, out: BinaryIO, size: int | None, tell: Tell) -> None:
    """Append what is missing of `url` to `out`; whatever breaks it off is said with where."""
    here = out.tell()
    if here and here == size:
        return  # all was here, only the end of the last attempt was missing
    try:
        with open_from(url, here) as response:
            here, total = expected(response, here)
            total = size if total is None else total
            if size is not None and total != size:
                raise ValueError(f"{url} offers {total:,} bytes, not {size:,}: nothing was taken")
            out.truncate(here)
            while block := response.read(BLOCK):
                here += len(block)
                if total is not None and here > total:
                    out.truncate(0)
                    raise ValueError(f"{url} sent more than the {total:,} bytes it should have")
                out.write(block)
                tell(here, total)
    except (
        urllib.error.URLError,
        TimeoutError,
        ConnectionError,
        http.client.HTTPException,
        ssl.SSLError,
    ) as error:
        raise ValueError(f"could not download {url}: {error}; {broken(out, url)}") from error
    if total is not None and here < total:
        raise ValueError(f"{url} broke off at {here:,} of {total:,} bytes; {broken(out, url)}")


def broken(out: BinaryIO, url: str) -> str:
    kept = f": ask again to go on from byte {out.tell():,}" if out.tell() else ""
    return f"nothing was installed{kept}"


def open_from(url: str, here: int) -> Any:
    """Open a URL at a byte; where the server finds nothing left there, from the start."""
    wanted = {"Range": f"bytes={here}-"} if here else {}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=wanted), timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        return urllib.request.urlopen(url, timeout=60)


def expected(response: Any, here: int) -> tuple[int, int | None]:
    """Return where the answer starts (0 where the server ignored the range) and the whole size."""
    length = response.headers.get("Content-Length")
    start = here if getattr(response, "status", None) == 206 else 0
    return start, start + int(length) if length and length.isdigit() else None
