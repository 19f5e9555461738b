"""Runs in a storage: written in a folder of this machine, from which changes are uploaded.

Rows are uploaded before the checkpoint that needs them, and the status last. So another machine can
continue the run wherever an upload breaks off.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from toosure.runs.files import take_lock, write_json
from toosure.runs.json_text import read_json
from toosure.runs.storage import StorageError, as_url, file_names, file_system, local_folder

CLAIM = "writer.json"  # in the storage: which process writes the run
INDEX = ".storage.json"  # in the working folder: the state after the last transfer
STALE = 900.0  # seconds without an upload after which a writer counts as dead

# The name of each file in the storage -> a text that changes when the file is rewritten.
Listing = dict[str, str]
Index = dict[str, list[object]]  # name -> that text, then time and size of the file here


def fetched_folder(path: str | Path) -> Path:
    """Return the local folder of a run or of runs; a URL is fetched first.

    Checkpoints are not fetched, nor is a run that this machine is writing.
    """
    url = as_url(path)
    folder = local_folder(path)
    if url is None:
        return folder

    everything = StoredFolder(url).listing()
    stored = {PurePosixPath(name).parent for name in everything if marks_a_run(name)}
    copied = {PurePosixPath(file.parent.relative_to(folder)) for file in folder.rglob(INDEX)}
    for run in sorted(stored | copied):
        start = "" if run == PurePosixPath() else f"{run}/"
        part = {k.removeprefix(start): v for k, v in everything.items() if k.startswith(start)}
        StoredFolder(f"{url}/{start}".rstrip("/")).refresh(part)
    return folder


def marks_a_run(name: str) -> bool:
    """Whether a file with this name makes its folder a run."""
    return PurePosixPath(name).name in ("metrics.jsonl", "status.json")


def is_claimed(folder: Path) -> bool:
    """Whether another machine writes a fetched run: its writer uploaded a short while ago."""
    renewed = read_json(folder / CLAIM, if_damaged={}).get("renewed")
    return isinstance(renewed, int | float) and time.time() - renewed < STALE


class StoredFolder:
    """A folder in a storage and its working folder on this machine.

    A storage has no locks. So the process that opens a run for writing leaves its mark; the last
    one wins, and a writer that no longer finds its own mark stops.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.folder = local_folder(url)
        self.files, self.root = file_system(url)
        self.mark = ""  # of this process, while it is the writer

    @contextmanager
    def storage_errors(self, action: str) -> Iterator[None]:
        """Turn any error of a storage into one sentence."""
        try:
            yield
        except Exception as error:  # every storage has errors of its own
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise StorageError(
                f"{self.url} cannot be {action} ({type(error).__name__}: {reason}): fix that "
                "and repeat the command; what was uploaded before is kept"
            ) from error

    def path(self, name: str) -> str:
        """Return a file's path in the storage."""
        return f"{self.root}/{name}"

    def listing(self) -> Listing:
        """Return every file in the storage, with a text that changes when it is rewritten."""
        with self.storage_errors("read"):
            self.files.invalidate_cache()
            files = self.files.find(self.root, detail=True)
        names = {path.removeprefix(self.root).lstrip("/"): info for path, info in files.items()}
        return {
            name: json.dumps(info, sort_keys=True, default=str)
            for name, info in names.items()
            if is_own(name)
        }

    # -- from the storage to this machine ---------------------------------------------------

    def refresh(self, listing: Listing) -> None:
        """Fetch all but checkpoints, unless a process of this machine writes the run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(self.folder)
        if lock is None:
            return
        with lock:
            self.download(listing, checkpoints=False)

    def download(self, listing: Listing, checkpoints: bool = True) -> None:
        """Make the working folder equal to a listing: fetch or delete files that differ."""
        index = self.read_index()
        for name, version in listing.items():
            here = self.folder / name
            is_known = index.get(name) == [version, *stamp(here)]
            is_wanted = checkpoints or not name.startswith("checkpoints/")
            if is_wanted and not is_known and self.fetch(name):
                index[name] = [version, *stamp(here)]

        for name in set(file_names(self.folder)) - set(listing):
            (self.folder / name).unlink(missing_ok=True)
        self.write_index({name: index[name] for name in listing if name in index})

    def fetch(self, name: str) -> bool:
        """Fetch a file, whole or not at all; return whether it is still there."""
        here = self.folder / name
        here.parent.mkdir(parents=True, exist_ok=True)
        beside = here.with_name(f".{here.name}.{secrets.token_hex(4)}.part")

        try:
            with self.storage_errors("read"):
                try:
                    self.files.get_file(self.path(name), str(beside))
                except FileNotFoundError:
                    return False
            os.replace(beside, here)
            return True
        finally:
            beside.unlink(missing_ok=True)

    # -- from this machine to the storage ---------------------------------------------------

    def open(self) -> None:
        """Become the writer, and fetch everything that was uploaded, with the checkpoints."""
        self.mark = secrets.token_hex(8)
        with self.storage_errors("written"):
            self.files.makedirs(self.root, exist_ok=True)
        self.write_claim()
        listing = self.listing()
        listing.pop(CLAIM, None)
        self.download(listing)

    def write_claim(self) -> None:
        """Leave the mark of this process, with the time."""
        claim = {"mark": self.mark, "host": socket.gethostname(), "renewed": time.time()}
        with self.storage_errors("written"):
            self.files.pipe_file(self.path(CLAIM), json.dumps(claim).encode())

    def check_claim(self) -> None:
        """Raise unless the mark is still that of this process."""
        with self.storage_errors("read"):
            try:
                claim = json.loads(self.files.cat_file(self.path(CLAIM)))
            except (FileNotFoundError, ValueError):
                claim = {}
        if claim.get("mark") != self.mark:
            host = claim.get("host")
            taken = f"taken over by {host}" if host else "finished elsewhere or deleted"
            raise StorageError(f"{self.url} was {taken} meanwhile: this process stops writing it")

    def upload(self) -> None:
        """Upload what changed here, and delete checkpoints and snapshots deleted here."""
        if not self.mark:
            return
        self.check_claim()

        index = self.read_index()
        names = [name for name in file_names(self.folder) if name != CLAIM]
        stamps = {name: stamp(self.folder / name) for name in sorted(names, key=upload_order)}
        changed = {n: now for n, now in stamps.items() if now != index.get(n, [None])[1:]}
        for name in changed:
            self.put(name)

        listing = self.listing()
        for name in set(listing) - set(names):
            if name.startswith(("checkpoints/", "snapshots/")):
                with self.storage_errors("written"):
                    self.files.rm_file(self.path(name))

        for name, now in changed.items():
            index[name] = [listing.get(name), *now]
        self.write_index({name: index[name] for name in names})
        self.write_claim()

    def put(self, name: str) -> None:
        """Upload a file under another name, and rename it.

        Checkpoints are uploaded directly, because on object storage a rename is a copy. Each has
        its own name, and the checksum reveals a half one.
        """
        target = self.path(name)
        place, _, last = target.rpartition("/")
        beside = f"{place}/.{last}.{self.mark}.part"
        with self.storage_errors("written"):
            self.files.makedirs(place, exist_ok=True)
            if name.startswith("checkpoints/"):
                self.files.put_file(str(self.folder / name), target)
            else:
                self.files.put_file(str(self.folder / name), beside)
                self.files.mv(beside, target)

    def close(self) -> None:
        """Upload what is left, and let others write."""
        if not self.mark:
            return
        try:
            self.upload()
            with self.storage_errors("written"):
                self.files.rm_file(self.path(CLAIM))
        finally:
            self.mark = ""

    # -- what both sides had ----------------------------------------------------------------

    def read_index(self) -> Index:
        """Return the state of both sides after the last transfer."""
        return read_json(self.folder / INDEX, if_damaged={})

    def write_index(self, index: Index) -> None:
        write_json(self.folder / INDEX, index)


def is_own(name: str) -> bool:
    """Whether a file of the storage belongs to a run: not a lock, not half written."""
    *folders, last = name.split("/")
    return last != "lock" and not last.startswith(".") and ".." not in folders


def upload_order(name: str) -> tuple[int, str]:
    """Sort checkpoints after the rows that they need, and the status last."""
    if name == "status.json":
        return 2, name
    return int(name.startswith("checkpoints/")), name


def stamp(file: Path) -> list[object]:
    """Return the time and size of a file, which change when it is rewritten; [] without a file."""
    try:
        status = file.stat()
    except OSError:
        return []
    return [status.st_mtime_ns, status.st_size]
