"""The state of a sweep: which run is next, which to try again, and how each ended."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from toosure.config import RunConfig
from toosure.runs import Run, RunWriter
from toosure.runs.stored_folder import fetched_folder
from toosure.runs.write import FINISHED
from toosure.sweep.events import Event, dispatch
from toosure.train import ProgressListener, Runtime

MAX_TRIES = 3  # a run is given up when its worker died this often
RETRY_DELAY = 0.5  # seconds before a busy run is tried again
HOLD_TIME = 5.0  # seconds after its start for which a busy run counts as held by another process

OutcomeKind = Literal["ended", "failed", "busy", "died", "left"]
Changes = dict[str, Any]  # of a runtime: {"graph": False}; JSON can hold it


@dataclass
class Sweep:
    """Hold the runs of a sweep in order, and what went wrong by run name.

    A sweep that `stopped` was interrupted by a signal, or came to its deadline.
    """

    runs: list[Run] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    interrupted: bool = False


@dataclass
class RunOutcome:
    """How a run came back: `ended` (with its status), `failed`, or `busy` with another writer.

    The sweep itself uses `died` for a run whose worker died before it answered, and `left` if that
    does not count, because the sweep was stopping.
    """

    kind: OutcomeKind
    message: str = ""


@dataclass(eq=False)
class Job:
    """One run of a sweep, and how often it was tried."""

    number: int
    config: RunConfig
    folder: Path
    listener: ProgressListener
    deaths: int = 0
    end_event: Event | None = None
    busy_since: float | None = None
    started_at: float = 0.0
    try_again_at: float = 0.0
    stop_requested: bool = False  # this run alone is to stop
    changes: Changes = field(default_factory=dict)  # what its runtime differs in

    def own(self, runtime: Runtime) -> Runtime:
        """Return the runtime of this run, given that of the sweep."""
        return replace(runtime, **self.changes)

    @property
    def is_held(self) -> bool:
        """Whether another process is known to have the run."""
        return self.busy_since is not None and time.monotonic() - self.started_at < HOLD_TIME


class Jobs:
    """Hand out the runs of a sweep, and record how each ended.

    A run that another process is writing waits while there are others to do, and is given up
    `patience` seconds later. A run whose worker died is tried again, at most `MAX_TRIES` times in
    all. The caller drops waiting runs after the `deadline`, a time of `time.monotonic`. `changes`
    returns what the runtime of a run differs in.
    """

    def __init__(
        self,
        configs: Iterable[RunConfig],
        out: Path,
        listener: ProgressListener,
        patience: float = 0.0,
        deadline: float | None = None,
        changes: Callable[[RunConfig], Changes] = lambda _: {},
    ) -> None:
        self.deadline = deadline
        self.not_started: list[Job] = []  # because the deadline had passed
        self.listener = listener
        self.patience = patience
        self.all = [
            Job(number, config, out / config.name, listener, changes=changes(config))
            for number, config in enumerate(configs)
        ]
        self.waiting = deque(self.all)
        self.under_way: set[Job] = set()
        self.runs: dict[int, Run] = {}  # by the job's number
        self.failures: dict[str, str] = {}

    @property
    def left(self) -> bool:
        """Whether any run is not finished yet."""
        return bool(self.waiting or self.under_way)

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed, by the clock of this process."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def drop_waiting(self) -> None:
        """Start no more runs: those that wait are listed as not started."""
        self.not_started += self.waiting
        self.waiting.clear()

    def next(self) -> Job | None:
        """Return a run to train now, if there is one."""
        now = time.monotonic()
        for job in self.waiting:
            if job.try_again_at <= now:
                self.waiting.remove(job)
                self.under_way.add(job)
                job.started_at = now
                if job.listener is self.listener:
                    job.listener = self.listener.for_concurrent_run()
                return job
        return None

    def receive(self, job: Job, event: Event) -> None:
        """Pass an event on; hold back the end until the outcome, as a worker may die in between."""
        if event["event"] == "end":
            job.end_event = event
        else:
            dispatch(event, job.config, job.listener)

    def record(self, job: Job, outcome: RunOutcome) -> None:
        """Record how a run ended, or queue it to be tried again."""
        self.under_way.discard(job)
        end_event = job.end_event
        job.end_event = None

        if outcome.kind == "ended":
            if end_event is not None:
                dispatch(end_event, job.config, job.listener)
            self.runs[job.number] = Run(job.folder)
        elif outcome.kind == "left":
            self.waiting.append(job)
        elif outcome.kind == "busy" and self.is_patient(job):
            job.try_again_at = time.monotonic() + RETRY_DELAY
            self.waiting.append(job)
        elif outcome.kind == "died" and job.deaths + 1 < MAX_TRIES:
            job.deaths += 1
            job.listener.message(
                f"{outcome.message}; {job.config.name} goes on from its checkpoint"
            )
            self.waiting.append(job)
        else:
            self.give_up(job, outcome)

    def is_patient(self, job: Job) -> bool:
        """Whether to try a busy run again: always once, then while patience lasts.

        Patience runs only while there is nothing else to do.
        """
        first = job.busy_since is None
        if first or not all(other.is_held for other in [*self.waiting, *self.under_way]):
            job.busy_since = time.monotonic()
        return first or time.monotonic() - (job.busy_since or 0) < self.patience

    def give_up(self, job: Job, outcome: RunOutcome) -> None:
        """Record a failure, also in the folder if the worker died."""
        message = outcome.message
        if outcome.kind == "died":
            message = f"{message}, {MAX_TRIES} times; repeat the command to try again"
            with suppress(ValueError), RunWriter(job.folder) as writer:
                writer.set_status("failed", writer.outcome.get("step", 0), message)

        self.failures[job.config.name] = message
        job.listener.fail(job.config, message)

    def sweep(self) -> Sweep:
        """Return the result, with the runs in the order of the configs."""
        runs = [run for _, run in sorted(self.runs.items())]
        interrupted = self.left or any(run.status == "stopped" for run in runs)
        stopped = interrupted or bool(self.not_started)
        return Sweep(runs, self.failures, stopped, interrupted)


def is_finished(folder: Path) -> bool:
    """Whether a run has ended for good, so that its data need not be loaded."""
    folder = fetched_folder(folder)
    return (folder / "status.json").is_file() and Run(folder).outcome.get("status") in FINISHED
