"""Find a data set's files below the data root, downloading what is missing if that is asked for."""

import shutil
from collections.abc import Callable
from pathlib import Path

from toosure.data.archives import is_occupied, unpack
from toosure.data.catalogue import SOURCES, Download
from toosure.data.download import Progress, fetch, verify_file

MAX_UNPACK_RATIO = 4  # an archive may unpack to this many times its size


def locate(name: str, root: Path, download: bool = False) -> list[Path]:
    """Return the path of each file or folder of a data set, after downloading what is missing."""
    source = SOURCES[name]
    root = Path(root).expanduser()
    if download and source.missing(root):
        obtain(name, root)
    if missing := source.missing(root):
        raise ValueError(f"{root} holds no {', '.join(missing)}: {how_to_get(name)}")

    places = [source.find_place(root, alternatives) for alternatives in source.needs]
    return [root / place for place in places if place is not None]


def how_to_get(name: str) -> str:
    """Return how to get a data set: the command that downloads it, or what to do by hand."""
    source = SOURCES[name]
    if not source.downloads:
        return f"{name} is not downloaded for you. From {source.page}: {source.manual}"
    return (
        "name another data root, or ask for the download (--download, download=True, or "
        f"`toosure data {name} --download`) of {source.bytes / 1e6:,.0f} MB from "
        f"{source.downloads[0].url}"
    )


def obtain(name: str, root: Path, progress: Callable[[str], Progress] | None = None) -> None:
    """Download what is missing of a data set, verify it, and unpack its archives.

    An archive that lies there already is verified, used and kept; one downloaded here is deleted
    once its folder is complete. `progress(file)` returns the function that is called with the
    bytes of that file as they arrive.
    """
    source = SOURCES[name]
    root = Path(root).expanduser()
    if source.missing(root) and not source.downloads:
        raise ValueError(how_to_get(name))

    # A data set has one download for each of its needs, or none at all.
    for places, download in zip(source.needs, source.downloads, strict=False):
        place = source.find_place(root, places)
        # A file that is there already is verified again.
        if place is None or place == download.target:
            install(download, root, progress and progress(download.target))


def install(download: Download, root: Path, progress: Progress | None) -> None:
    """Download one file unless it is there, verify it, and unpack it if it is an archive."""
    target = root / download.target
    folder = root / download.folder
    if download.folder and is_occupied(folder):
        raise ValueError(f"{folder} is there, but not all of it: move it away and ask again")

    is_new = not target.exists()
    try:
        if not is_new:
            verify_file(target, download.digest, download.size)
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}; move it away and ask again") from error
    if is_new:
        fetch(download.url, target, download.digest, download.size, progress)

    if download.folder:
        check_free_space(root, 2 * download.size)
        unpack(target, folder, limit=MAX_UNPACK_RATIO * download.size)
        if is_new:
            target.unlink()


def check_free_space(root: Path, needed: int) -> None:
    """Raise if the disk has less than `needed` bytes free."""
    if (free := shutil.disk_usage(root).free) < needed:
        raise ValueError(
            f"{root} has {free / 1e9:.1f} GB free, and unpacking needs {needed / 1e9:.1f}"
        )
