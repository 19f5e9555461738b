"""Fetch a file only when asked, check what came, and put it in place whole or not at all."""

import hashlib
import http.client
import os
import tempfile
import urllib.request
from pathlib import Path


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(url: str, target: Path, sha256: str) -> Path:
    """Download `url` beside `target`, compare its SHA-256, and rename it into place.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = Path(folder, "source")
    ...     _ = source.write_bytes(b"data")
    ...     fetch(source.as_uri(), Path(folder, "copy"), checksum(source)).read_bytes()
    b'data'
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise ValueError(f"cannot write to {target.parent}: {error}; nothing came") from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            copy(url, out)
        if (came := checksum(part)) != sha256:
            raise ValueError(
                f"{url} sent a file with SHA-256 {came}, not {sha256}; nothing was installed: "
                f"try again, or put {target.name} into {target.parent} yourself"
            )
        part.chmod(0o644)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def copy(url: str, out) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            while block := response.read(1 << 20):
                out.write(block)
    except (OSError, http.client.HTTPException) as error:  # no network, time-outs, a full disk
        raise ValueError(f"could not download {url}: {error}; nothing was installed") from error
