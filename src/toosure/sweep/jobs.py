"""What is left of a sweep: which run is next, which to try again, and how each ended."""

import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from toosure.config import RunConfig
from toosure.runs import Run, RunWriter
from toosure.runs.write import FINISHED
from toosure.sweep.telling import Event, tell
from toosure.train.show import Show

TRIES = 3  # a run whose worker dies so often is given up


@dataclass
class Sweep:
    """Hold the runs of a sweep in order, and what went wrong by run name."""

    runs: list[Run] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


@dataclass
class Result:
    """Say how a run came back: `ended` (with its status), `failed`, or `busy` with another writer.

    `died` and `left` are said by others, of a run whose worker did not live to say anything: `left`
    where that does not count, since the sweep was stopping.
    """

    kind: str
    said: str = ""


@dataclass(eq=False)
class Job:
    """One run on its way."""

    number: int
    config: RunConfig
    folder: Path
    show: Show
    deaths: int = 0
    ending: Event | None = None
    busy_since: float | None = None
    begun_at: float = 0.0
    again_at: float = 0.0

    @property
    def is_held(self) -> bool:
        """Whether another process has the run, as far as one knows."""
        return self.busy_since is not None and time.monotonic() - self.begun_at < 5.0


class Jobs:
    """Hand out the runs of a sweep, and take back how each came out.

    A run that another process is writing waits for it while there are others to do, and is given up
    `patience` seconds later; one whose worker died is tried again, at most `TRIES` times in all.
    """

    def __init__(
        self, configs: Iterable[RunConfig], out: Path, show: Show, patience: float = 0.0
    ) -> None:
        self.show, self.patience = show, patience
        self.all = [Job(n, c, out / c.name, show) for n, c in enumerate(configs)]
        self.waiting = deque(self.all)
        self.under_way: set[Job] = set()
        self.found: dict[int, Run] = {}
        self.failures: dict[str, str] = {}

    @property
    def left(self) -> bool:
        """Whether any run has not come back for good."""
        return bool(self.waiting or self.under_way)

    def next(self) -> Job | None:
        """Return a run to carry out now, if there is one."""
        now = time.monotonic()
        for job in self.waiting:
            if job.again_at <= now:
                self.waiting.remove(job)
                self.under_way.add(job)
                job.begun_at = now
                job.show = self.show.beside() if job.show is self.show else job.show
                return job
        return None

    def hear(self, job: Job, event: Event) -> None:
        """Pass on what happens; the end only with the result, for a worker may die in between."""
        if event["event"] == "end":
            job.ending = event
        else:
            tell(job.show, job.config, event)

    def take_back(self, job: Job, result: Result) -> None:
        """Note how a run came out, and whether it is to be tried again."""
        self.under_way.discard(job)
        ending, job.ending = job.ending, None
        if result.kind == "ended":
            if ending is not None:
                tell(job.show, job.config, ending)
            self.found[job.number] = Run(job.folder)
        elif result.kind == "left":
            self.waiting.append(job)
        elif result.kind == "busy" and self.is_patient(job):
            job.again_at = time.monotonic() + 0.5
            self.waiting.append(job)
        elif result.kind == "died" and job.deaths + 1 < TRIES:
            job.deaths += 1
            job.show.say(f"{result.said}; {job.config.name} goes on from its checkpoint")
            self.waiting.append(job)
        else:
            self.give_up(job, result)

    def is_patient(self, job: Job) -> bool:
        """Whether a busy run is worth another look: always once, then while patience lasts."""
        first = job.busy_since is None
        if first or not all(other.is_held for other in [*self.waiting, *self.under_way]):
            job.busy_since = time.monotonic()
        return first or time.monotonic() - (job.busy_since or 0) < self.patience

    def give_up(self, job: Job, result: Result) -> None:
        message = result.said
        if result.kind == "died":
            message = f"{message}, {TRIES} times; repeat the command to try again"
            with suppress(ValueError), RunWriter(job.folder) as writer:
                writer.set_status("failed", writer.outcome.get("step", 0), message)
        self.failures[job.config.name] = message
        job.show.fail(job.config, message)

    def sweep(self) -> Sweep:
        """Return what came of it, in the order of the runs."""
        runs = [run for _, run in sorted(self.found.items())]
        stopped = self.left or any(run.status == "stopped" for run in runs)
        return Sweep(runs, self.failures, stopped)


def is_finished(folder: Path) -> bool:
    """Whether a run has ended for good, so that nothing need be loaded for it."""
    return (folder / "status.json").is_file() and Run(folder).outcome.get("status") in FINISHED
