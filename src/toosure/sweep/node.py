"""The part on a Ray node: one task per run, and the mailbox for its events."""

import os
import queue
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from toosure.config import RunConfig
from toosure.sweep.events import Event, EventSender
from toosure.sweep.folder_transfer import FolderPacker, Package, unpack
from toosure.sweep.jobs import RunOutcome
from toosure.sweep.run_one import DataCache, run_one
from toosure.train import Runtime
from toosure.train.checkpoint import checkpoints
from toosure.train.interrupt import Stop, interruptible

POST_INTERVAL = 0.5  # seconds between two posts of a run


class Mailbox:
    """Hold the events of the runs until the driver takes them: an actor on the cluster's head."""

    def __init__(self) -> None:
        self.posts: list[tuple[int, list[Event]]] = []
        self.stopping = False
        self.disowned: set[int] = set()

    def post(self, attempt: int, events: list[Event]) -> bool:
        """Add events of a run; return whether it should stop."""
        self.posts.append((attempt, events))
        return self.stopping or attempt in self.disowned

    def take(self) -> list[tuple[int, list[Event]]]:
        """Return and remove all posts."""
        posts = self.posts
        self.posts = []
        return posts

    def stop(self) -> None:
        """Ask all runs to stop."""
        self.stopping = True

    def disown(self, attempt: int) -> None:
        """Ask a run to stop that was taken for dead and was replaced by another attempt."""
        self.disowned.add(attempt)


class RemoteMethod(Protocol):
    """A method of an actor as Ray calls it: `.remote` returns a reference to the result."""

    def remote(self, *arguments: object) -> Any: ...


class MailboxHandle(Protocol):
    """Ray's handle of a `Mailbox`."""

    post: RemoteMethod
    take: RemoteMethod
    stop: RemoteMethod
    disown: RemoteMethod


@dataclass(frozen=True)
class Task:
    """Everything that a node must know about a run.

    `package` is the run's folder, None if the node sees it itself; then `token` is a file in `out`,
    or empty for the URL of a storage. `working_folder` is the driver's current folder.
    """

    attempt: int
    config: RunConfig
    runtime: dict[str, Any]
    out: Path
    token: str
    working_folder: Path
    package: Package | None = None
    argv: list[str] = field(default_factory=list)


def run_task(task: Task, mailbox: MailboxHandle) -> RunOutcome:
    """Train a run on this node, in the shared folder or in one that is sent back."""
    sys.argv = task.argv  # what the user typed, for environment.json
    with interruptible() as stop:
        outbox = Outbox(task.attempt, mailbox, stop)
        outbox.deliver()
        if stop.requested:
            return RunOutcome("left")
        if problem := change_folder(task.working_folder, task.config):
            return RunOutcome("failed", problem)

        if task.package is None:
            if task.token and not (task.out / task.token).is_file():
                return RunOutcome("died", f"a node does not see {task.out}")
            return run_in_folder(task, task.out, outbox)

        with tempfile.TemporaryDirectory(prefix="toosure-") as out:
            folder = Path(out) / task.config.name
            folder.mkdir()
            unpack(task.package, folder)
            outbox.packer = FolderPacker(folder)
            outbox.packer.pack()  # the driver has these files
            return run_in_folder(task, Path(out), outbox)


def run_in_folder(task: Task, out: Path, outbox: "Outbox") -> RunOutcome:
    """Train while events are posted; return the outcome after the last of them."""
    with outbox:
        runtime = Runtime(**task.runtime)
        cache = data_cache(runtime, task.working_folder)
        return run_one(task.config, out, runtime, EventSender(outbox.add), cache)


def change_folder(folder: Path, config: RunConfig) -> str:
    """Change to the driver's folder, to which paths and modules are relative; or return why not."""
    if folder.is_dir():
        os.chdir(folder)
        if str(folder) not in sys.path:  # a driver on another machine does not send its path
            sys.path.insert(0, str(folder))
        return ""

    with suppress(ValueError):  # the run itself reports what is wrong with the word
        for value in config.word("data").settings.values():
            if isinstance(value, Path) and not value.expanduser().is_absolute():
                return f"a node has no folder {folder}, in which {value} is meant: name it from /"
    return ""


@cache
def data_cache(runtime: Runtime, working_folder: Path) -> DataCache:
    """Return the cache of this process, which Ray reuses for one run after another.

    Relative paths depend on the working folder, so another folder needs another cache.
    """
    return DataCache(runtime)


class Outbox:
    """Post events from a thread, with the changes of a folder that is sent back."""

    def __init__(self, attempt: int, mailbox: MailboxHandle, stop: Stop) -> None:
        self.attempt = attempt
        self.mailbox = mailbox
        self.stop = stop
        self.packer: FolderPacker | None = None
        self.sent_checkpoints: set[str] = set()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.keep_delivering, daemon=True)

    def add(self, event: Event) -> None:
        """Queue an event for the next post."""
        self.events.put(event)

    def __enter__(self) -> "Outbox":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        if self.packer is not None:
            self.add({"event": "files", "package": self.packer.pack()})
        self.deliver()

    def keep_delivering(self) -> None:
        """Post until the run is over."""
        while not self.over.wait(POST_INTERVAL):
            self.pack_checkpoint()
            self.deliver()

    def pack_checkpoint(self) -> None:
        """Add the folder's changes when there is a new checkpoint to continue from."""
        if self.packer is None:
            return
        names = {path.name for path in checkpoints(self.packer.folder)}
        if names - self.sent_checkpoints:
            self.sent_checkpoints = names
            self.add({"event": "files", "package": self.packer.pack()})

    def deliver(self) -> None:
        """Post the queue, even if it is empty, and obey the answer; a lost mailbox means stop."""
        import ray

        events = [self.events.get() for _ in range(self.events.qsize())]  # no other thread gets any
        try:
            stop = ray.get(self.mailbox.post.remote(self.attempt, events))
        except ray.exceptions.RayError:
            stop = True
        if stop:
            self.stop.requested = True


def sees_file(path: Path) -> bool:
    """Whether this node sees a file."""
    with suppress(OSError):
        return path.is_file()
    return False
