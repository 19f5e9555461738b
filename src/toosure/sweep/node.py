"""What happens on a node of a Ray cluster: one task a run, and the mailbox it writes to."""

import os
import queue
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.sweep.carry_out import Loaded, carry_out
from toosure.sweep.folders import Load, Packer, place
from toosure.sweep.jobs import Result
from toosure.sweep.telling import Telling
from toosure.train import Means
from toosure.train.checkpoint import checkpoints
from toosure.train.interrupt import Stop, interruptible

PAUSE = 0.5  # seconds between two letters of a run


class Mailbox:
    """Keep what the runs say until the driver takes it; an actor, beside the cluster's head."""

    def __init__(self) -> None:
        self.letters: list[tuple[int, list[Any]]] = []
        self.stopping = False
        self.disowned: set[int] = set()

    def post(self, attempt: int, events: list[Any]) -> bool:
        """Leave word of a run; the answer is whether it should stop."""
        self.letters.append((attempt, events))
        return self.stopping or attempt in self.disowned

    def take(self) -> list[tuple[int, list[Any]]]:
        """Hand over all letters."""
        letters, self.letters = self.letters, []
        return letters

    def stop(self) -> None:
        """Ask all runs to stop."""
        self.stopping = True

    def disown(self, attempt: int) -> None:
        """Ask a run to stop that was thought dead: another has its place."""
        self.disowned.add(attempt)


@dataclass(frozen=True)
class Task:
    """Say all that a node must know of a run; `load` is its folder, None where that is shared.

    `here` is where the driver stands.
    """

    attempt: int
    config: RunConfig
    means: dict[str, Any]
    out: Path
    token: str
    here: Path
    load: Load | None = None
    argv: list[str] = field(default_factory=list)


def carry_out_task(task: Task, mailbox: Any) -> Result:
    """Carry out a run on this node, in the shared folder or in one that is brought back."""
    sys.argv = task.argv  # what the user typed, for environment.json
    with interruptible() as stop:
        letters = Letters(task.attempt, mailbox, stop)
        letters.deliver()
        if stop.asked:
            return Result("left")
        if problem := come_to(task.here, task.config):
            return Result("failed", problem)
        if task.load is None:
            if not (task.out / task.token).is_file():
                return Result("died", f"a node does not see {task.out}")
            return in_folder(task, task.out, letters)
        with tempfile.TemporaryDirectory(prefix="toosure-") as out:
            folder = Path(out) / task.config.name
            folder.mkdir()
            place(task.load, folder)
            letters.packer = Packer(folder)
            letters.packer.pack()  # the driver has these
            return in_folder(task, Path(out), letters)


def in_folder(task: Task, out: Path, letters: "Letters") -> Result:
    """Train while the letters go out, the last of them before the result."""
    with letters:
        means = Means(**task.means)
        return carry_out(task.config, out, means, Telling(letters.add), loaded(means, task.here))


def come_to(here: Path, config: RunConfig) -> str:
    """Go where the driver stands, from where paths and modules are meant; or say why that fails."""
    if here.is_dir():
        os.chdir(here)
        if str(here) not in sys.path:  # a driver from afar does not bring its own
            sys.path.insert(0, str(here))
        return ""
    with suppress(ValueError):  # what is wrong with the word, the run itself says
        for value in config.word("data").settings.values():
            if isinstance(value, Path) and not value.expanduser().is_absolute():
                return f"a node has no folder {here}, in which {value} is meant: name it from /"
    return ""


@cache
def loaded(means: Means, here: Path) -> Loaded:
    """Return what this process has loaded: Ray gives it one run after another."""
    return Loaded(means)


class Letters:
    """Write to the mailbox from a thread, with the folder's changes where it is brought back."""

    def __init__(self, attempt: int, mailbox: Any, stop: Stop) -> None:
        self.attempt, self.mailbox, self.stop = attempt, mailbox, stop
        self.packer: Packer | None = None
        self.known: set[str] = set()  # checkpoints
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.keep_delivering, daemon=True)

    def add(self, event: dict[str, Any]) -> None:
        self.events.put(event)

    def __enter__(self) -> "Letters":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        if self.packer is not None:
            self.add({"event": "files", "load": self.packer.pack()})
        self.deliver()

    def keep_delivering(self) -> None:
        while not self.over.wait(PAUSE):
            self.pack_checkpoint()
            self.deliver()

    def pack_checkpoint(self) -> None:
        """Add the folder's changes when there is a new checkpoint to go on from."""
        if self.packer is None:
            return
        there = {path.name for path in checkpoints(self.packer.folder)}
        if there - self.known:
            self.known = there
            self.add({"event": "files", "load": self.packer.pack()})

    def deliver(self) -> None:
        """Post what there is, perhaps nothing, and heed the answer; no mailbox means stop."""
        import ray

        events = [self.events.get() for _ in range(self.events.qsize())]  # no other takes any
        try:
            asked = ray.get(self.mailbox.post.remote(self.attempt, events))
        except ray.exceptions.RayError:
            asked = True
        if asked:
            self.stop.asked = True


def sees(path: Path) -> bool:
    """Whether this node sees a file."""
    with suppress(OSError):
        return path.is_file()
    return False
