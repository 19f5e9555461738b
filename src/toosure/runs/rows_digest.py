"""The count and hash of a run's rows, so that a checkpoint can tell whether they are there."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHUNK = 1 << 20  # bytes read at once


class RowsDigest:
    """Count and hash rows as they are appended.

    >>> digest = RowsDigest()
    >>> digest.add(b'{"step": 0}' + bytes([10]))
    >>> state = digest.as_dict()
    >>> state["count"], state["bytes"], state["sha256"][:8]
    (1, 12, '4a47ce58')
    """

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.hash = hashlib.sha256()

    def add(self, lines: bytes) -> None:
        """Add whole lines, or a piece of a file."""
        self.count += lines.count(b"\n")
        self.size += len(lines)
        self.hash.update(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the digest as plain values, for a checkpoint."""
        return {"count": self.count, "bytes": self.size, "sha256": self.hash.hexdigest()}


def digest_of(file: Path, size: int | None = None) -> RowsDigest:
    """Return the digest of a file of rows, or of its first `size` bytes."""
    digest = RowsDigest()
    if not file.is_file():
        return digest

    with file.open("rb") as rows:
        while size is None or digest.size < size:
            piece = rows.read(CHUNK if size is None else min(CHUNK, size - digest.size))
            if not piece:
                break
            digest.add(piece)
    return digest


def begins_with(file: Path, state: Mapping[str, Any]) -> bool:
    """Whether a file begins with the rows of a digest, byte for byte."""
    return digest_of(file, state["bytes"]).as_dict() == dict(state)
