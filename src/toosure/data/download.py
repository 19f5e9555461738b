"""Download a file: resume a broken transfer, verify it, and install it whole or not at all."""

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.response import addinfourl

BLOCK = 1 << 20  # bytes read at once
TIMEOUT = 60  # seconds without an answer
NETWORK_ERRORS = (
    urllib.error.URLError,
    TimeoutError,
    ConnectionError,
    http.client.HTTPException,
    ssl.SSLError,
)
Progress = Callable[[int, int | None], None]  # bytes so far, total bytes if known


def checksum(path: Path, kind: str = "sha256") -> str:
    """Return a file's checksum with its kind, as in sha256:9f86d0..."""
    with open(path, "rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def verify_file(path: Path, digest: str, size: int | None = None) -> None:
    """Raise if a file is not the published one; `digest` is md5:... or sha256:..."""
    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        raise ValueError(
            f"{path} has {actual_size:,} bytes, not {size:,}: cut short, or another file"
        )
    kind = digest.partition(":")[0]
    if (actual := checksum(path, kind)) != digest:
        raise ValueError(f"{path} is damaged or another file: {actual}, published {digest}")


def partial_path(target: Path) -> Path:
    """Return the path of a file while it is being downloaded."""
    return target.with_name(f".{target.name}.part")


def fetch(
    url: str, target: Path, digest: str, size: int | None = None, progress: Progress | None = None
) -> Path:
    """Download `url` beside `target`, compare size and checksum, and rename it into place.

    Until then the bytes lie in `.NAME.part`. A broken download is resumed from there by the next
    call, if the server can. A file that is not the published one is deleted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = Path(folder, "source")
    ...     _ = source.write_bytes(b"data")
    ...     fetch(source.as_uri(), Path(folder, "copy"), checksum(source)).read_bytes()
    b'data'
    """
    part = partial_path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as out:
            lock_file(out, f"downloading {target}")
            append_missing(url, out, size, progress or (lambda received, total: None))
            out.flush()
            # Verify while the lock is held, so that no other process writes to the file.
            verify_or_empty(url, out, target, digest, size)
    except OSError as error:
        raise ValueError(f"cannot write to {target.parent}: {error}; nothing came") from error
    finally:
        if part.is_file() and not part.stat().st_size:
            part.unlink()

    os.replace(part, target)
    return target


def verify_or_empty(
    url: str, out: BinaryIO, target: Path, digest: str, size: int | None = None
) -> None:
    """Raise if the downloaded file is not the published one, and empty it."""
    try:
        verify_file(Path(out.name), digest, size)
    except ValueError as error:
        out.truncate(0)
        raise ValueError(
            f"{url} sent something else, and nothing was installed: {error}. Try again, or put "
            f"{target.name} into {target.parent} yourself"
        ) from error


def lock_file(file: BinaryIO, action: str) -> None:
    """Lock a file until it is closed; raise if another process holds it and does `action`.

    Systems and file systems without locks are left unprotected.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(f"another process is {action}: wait for it") from error
    except OSError:  # a file system without locks
        return


def append_missing(url: str, out: BinaryIO, size: int | None, progress: Progress) -> None:
    """Append the missing bytes of `url` to `out`; errors name the number of bytes received."""
    received = out.tell()
    if received and received == size:
        return  # the last attempt got every byte, and ended before they were verified

    try:
        with open_at(url, received) as response:
            received, total = start_and_total(response, received)
            total = size if total is None else total
            if size is not None and total != size:
                raise ValueError(f"{url} offers {total:,} bytes, not {size:,}: nothing was taken")

            out.truncate(received)
            while block := response.read(BLOCK):
                received += len(block)
                if total is not None and received > total:
                    out.truncate(0)
                    raise ValueError(f"{url} sent more than the {total:,} bytes it should have")
                out.write(block)
                progress(received, total)
    except NETWORK_ERRORS as error:
        raise ValueError(f"could not download {url}: {error}; {resume_hint(out)}") from error

    if total is not None and received < total:
        raise ValueError(f"{url} broke off at {received:,} of {total:,} bytes; {resume_hint(out)}")


def resume_hint(out: BinaryIO) -> str:
    """Return a hint that nothing was installed, and from which byte the next call resumes."""
    resume = f": ask again to go on from byte {out.tell():,}" if out.tell() else ""
    return f"nothing was installed{resume}"


def open_at(url: str, start: int) -> HTTPResponse | addinfourl:
    """Open a URL at a byte, or from its beginning if the server has nothing left there."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        response: HTTPResponse | addinfourl = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        response = urllib.request.urlopen(url, timeout=TIMEOUT)
    return response


def start_and_total(response: HTTPResponse | addinfourl, requested: int) -> tuple[int, int | None]:
    """Return the byte at which a response starts and the size of the whole file.

    The start is 0 if the server ignored the requested range.
    """
    start = requested if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
    length = response.headers.get("Content-Length")
    total = start + int(length) if length and length.isdigit() else None
    return start, total
