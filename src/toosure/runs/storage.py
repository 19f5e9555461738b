"""Shared or object storage: a URL that fsspec knows, and its working folder here."""

import importlib
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")


class StorageError(ValueError):
    """A storage failed; the message says what to do."""


def as_url(path: str | Path) -> str | None:
    """Return a URL in its original spelling; None for a folder of this machine.

    Commands take paths, and a `Path` of a URL loses a slash; it is restored.

    >>> as_url(Path("s3://bucket/runs")), as_url("file:///shared/runs/"), as_url("runs")
    ('s3://bucket/runs', 'file:///shared/runs', None)
    """
    match = SCHEME.fullmatch(str(path))
    if match is None:
        return None
    scheme, place = match.groups()
    root = "/" if scheme in ("file", "local") else ""
    return f"{scheme}://{root}{place.rstrip('/')}"


def local_folder(path: str | Path) -> Path:
    """Return the folder on this machine that a run, or a folder of runs, is written in.

    A path is returned unchanged; a URL has a folder below `TOOSURE_CACHE`, `~/.cache/toosure` by
    default.
    """
    url = as_url(path)
    if url is None:
        return Path(path)

    scheme, _, place = url.partition("://")
    parts = PurePosixPath(place.strip("/")).parts
    if not parts or ".." in parts:
        raise StorageError(
            f"{url} must name a folder of the storage, such as {scheme}://place/runs"
        )
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toosure"
    return Path(os.environ.get("TOOSURE_CACHE") or default).joinpath("storage", scheme, *parts)


def as_given(path: str | Path) -> str:
    """Return a path or URL in the user's spelling.

    >>> as_given(Path("s3://bucket/runs")), as_given(Path("runs"))
    ('s3://bucket/runs', 'runs')
    """
    return as_url(path) or str(path)


def check_local(path: str | Path, command: str) -> None:
    """Raise on a URL, for commands that keep more than runs in their folder."""
    if url := as_url(path):
        raise StorageError(
            f"{command} works in a folder of this machine, and {url} is a storage: name a folder "
            "(`toosure train` takes such a URL)"
        )


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL and the path in it, or say how to get the package."""
    try:
        fsspec = importlib.import_module("fsspec")
    except ImportError as error:
        raise StorageError(
            f"{url}: runs in a storage need fsspec: pip install 'toosure[storage]'"
        ) from error

    try:
        files, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # the package of this storage, or no such storage
        raise StorageError(f"{url} cannot be opened: {error}") from error
    return files, path.rstrip("/")


def file_names(folder: Path) -> list[str]:
    """Return the files that belong to a run, without locks and half-written files."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    own = [path for path in paths if path.name != "lock" and not path.name.startswith(".")]
    return [path.relative_to(folder).as_posix() for path in own]
