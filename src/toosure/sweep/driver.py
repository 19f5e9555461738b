"""The driver of a sweep on Ray: it submits one task per run and reads the mailbox.

A run whose worker or node dies is submitted again.
"""

import itertools
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toosure.data.image_files import MAX_DECODERS
from toosure.runs import RunWriter
from toosure.runs.files import is_locked
from toosure.runs.storage import as_url
from toosure.sweep.cluster import Cluster, connected, import_ray, token_in
from toosure.sweep.events import Event
from toosure.sweep.folder_transfer import FolderPacker, Package, unpack
from toosure.sweep.jobs import Job, Jobs, RunOutcome, Sweep
from toosure.sweep.node import Mailbox, Task, run_task, sees_file
from toosure.sweep.pool import skip_finished
from toosure.sweep.silence import SILENCE, SilenceWatch
from toosure.train import Runtime
from toosure.train.interrupt import Stop, interruptible

MAX_QUEUED = 4  # tasks submitted beyond what the cluster can take, so that no node waits for us
WAIT = 0.5  # seconds to wait for tasks to end


def on_cluster(jobs: Jobs, out: Path, runtime: Runtime, cluster: Cluster) -> Sweep:
    """Train the runs as tasks of a Ray cluster."""
    stored = as_url(out) is not None  # then every node uploads its runs itself
    out = out if stored else out.absolute()
    for job in jobs.all:
        job.folder = out / job.config.name

    skip_finished(jobs, out, runtime)
    if jobs.left:
        token_file = nullcontext("") if stored else token_in(out)
        cluster = replace(cluster, shared=True) if stored else cluster
        with connected(cluster.address), interruptible() as stop, token_file as token:
            drive(jobs, out, runtime, cluster, token, stop)
    return jobs.sweep()


def drive(
    jobs: Jobs, out: Path, runtime: Runtime, cluster: Cluster, token: str, stop: Stop
) -> None:
    """Let the driver work; an error of Ray that is not of a task means that the head is lost."""
    try:
        Driver(jobs, out, runtime, cluster, token).go(stop)
    except (import_ray().exceptions.RayError, ConnectionError) as error:
        raise ValueError(
            f"the cluster's head was lost ({type(error).__name__}): repeat the command once it is "
            "back, and the runs go on from their checkpoints"
        ) from error


@dataclass
class Attempt:
    """One attempt to train a run; the driver writes its folder where that is sent back."""

    number: int
    job: Job
    writer: RunWriter | None = None
    started: bool = False  # whether it has begun, as far as is known

    def close(self) -> None:
        """Let others write the folder."""
        if self.writer is not None:
            self.writer.close()


class Driver:
    """Submit tasks, receive their events, and write the folders that they send back."""

    def __init__(
        self, jobs: Jobs, out: Path, runtime: Runtime, cluster: Cluster, token: str
    ) -> None:
        self.ray = import_ray()
        self.jobs = jobs
        self.out = out
        self.token = token
        self.runtime = settings_for_tasks(runtime, cluster.cpus_per_run)
        self.needs = {"CPU": cluster.cpus_per_run, "GPU": cluster.gpus_per_run}

        # The mailbox lives and dies with the cluster's head.
        on_head = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
        self.mailbox = self.ray.remote(Mailbox).options(**on_head).remote()
        self.task = self.ray.remote(run_task).options(
            num_cpus=cluster.cpus_per_run, num_gpus=cluster.gpus_per_run, max_retries=0
        )
        self.shared = self.all_see_folder() if cluster.shared is None else cluster.shared

        self.numbers = itertools.count()
        self.attempts: dict[int, Attempt] = {}  # by number
        self.references: dict[object, Attempt] = {}  # by Ray's reference to the task
        self.silence = SilenceWatch()
        self.has_room = True  # whether a node could take a run, as far as was said
        self.stopping = False

    def all_see_folder(self) -> bool:
        """Ask every node whether it sees our folder."""
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        nodes = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        ask = self.ray.remote(sees_file)
        answers = [
            ask.options(num_cpus=0, scheduling_strategy=strategy(node, soft=False)).remote(
                self.out / self.token
            )
            for node in nodes
        ]
        return all(self.ray.get(answers))

    def go(self, stop: Stop) -> None:
        """Keep the cluster busy until nothing is left, or until each run has its checkpoint."""
        try:
            while self.jobs.under_way or (self.jobs.waiting and not self.stopping):
                if stop.requested and not self.stopping:
                    self.stop()
                if not self.stopping:
                    self.explain_wait()
                    self.submit_jobs()
                self.receive(self.ended_tasks())
        finally:
            for attempt in self.attempts.values():
                attempt.close()

    def stop(self) -> None:
        """Ask the runs to stop, and cancel those that have not begun: no node may ever come.

        One that begins all the same is told to stop by the answer to its first post.
        """
        self.stopping = True
        self.jobs.listener.message("stopping: the runs write checkpoints; again to end at once")
        self.ray.get(self.mailbox.stop.remote())
        self.receive([])
        for reference, attempt in list(self.references.items()):
            if not attempt.started:
                self.ray.cancel(reference)
                self.record(reference, RunOutcome("left"))

    def explain_wait(self) -> None:
        """Say when no node can take a run, and which runs are not heard of.

        Ray gives a node up whose processes are gone within seconds, and one that only is silent
        (no power, no network) after about a minute. Its runs are then submitted again.
        """
        had_room = self.has_room
        self.has_room = not any(self.needs.values()) or self.slots() > 0
        if had_room and not self.has_room:
            self.jobs.listener.message(
                "no node has the CPUs and GPUs of a run now; waiting for one"
            )

        for number in self.silence.newly_silent():
            job = self.attempts[number].job
            self.jobs.listener.message(
                f"{job.config.name} was not heard of for {SILENCE:.0f} s: its node is lost or very "
                "busy. Once Ray gives the node up, after about a minute, the run starts again "
                "elsewhere from its last checkpoint"
            )

    # -- submitting -------------------------------------------------------------------------

    def slots(self) -> int:
        """Return how many runs the cluster can take at once."""
        needs = self.needs
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(
            int(min(node.get(name, 0) // need for name, need in needs.items() if need))
            for node in nodes
            if any(needs.values())
        )

    def submit_jobs(self) -> None:
        """Submit as many runs as the cluster can take, and a few more."""
        if self.jobs.is_late:
            self.jobs.drop_waiting()
        room = self.slots() + MAX_QUEUED
        while len(self.references) < room and (job := self.jobs.next()):
            attempt = Attempt(next(self.numbers), job)
            try:
                package = None if self.shared else self.pack_folder(attempt)
            except ValueError as error:  # another process writes the folder, or it is damaged
                attempt.close()
                busy = is_locked(job.folder)
                self.jobs.record(job, RunOutcome("busy" if busy else "failed", str(error)))
                continue

            task = Task(
                attempt.number,
                job.config,
                self.runtime | job.changes,
                self.out,
                self.token,
                working_folder=Path.cwd(),
                package=package,
                argv=sys.argv,
            )
            self.attempts[attempt.number] = attempt
            self.references[self.task.remote(task, self.mailbox)] = attempt

    def pack_folder(self, attempt: Attempt) -> Package:
        """Become the writer of the folder, and return what is in it."""
        job = attempt.job
        attempt.writer = RunWriter(job.folder, asdict(job.config))
        return FolderPacker(job.folder).pack()

    # -- receiving --------------------------------------------------------------------------

    def ended_tasks(self) -> list[object]:
        """Wait a moment, and return the tasks that have ended."""
        if not self.references:
            time.sleep(0.2)
            return []
        tasks = list(self.references)
        ended, _ = self.ray.wait(tasks, num_returns=len(tasks), timeout=WAIT)
        return list(ended)

    def receive(self, ended: list[object]) -> None:
        """Read the mailbox first, since ended tasks posted before they ended; then record those."""
        for number, events in self.ray.get(self.mailbox.take.remote()):
            attempt = self.attempts.get(number)
            if attempt is None:
                continue
            attempt.started = True
            self.silence.hear(number)
            for event in events:
                self.handle(attempt, event)

        for reference in ended:
            self.record(reference, self.outcome_of(reference))

    def handle(self, attempt: Attempt, event: Event) -> None:
        """Write files that were sent back; pass all other events on."""
        if event["event"] == "files":
            assert attempt.writer is not None
            with attempt.writer.writing():
                unpack(event["package"], attempt.job.folder)
            return
        if "path" in event:  # the node's path is not ours
            event = {**event, "path": str(attempt.job.folder)}
        self.jobs.receive(attempt.job, event)
        if attempt.job.stop_requested:
            self.mailbox.disown.remote(attempt.number)

    def record(self, reference: object, outcome: RunOutcome) -> None:
        """Record how an attempt ended; what it may still post is not read."""
        attempt = self.references.pop(reference)
        del self.attempts[attempt.number]
        self.silence.forget(attempt.number)
        if outcome.kind == "died":
            self.mailbox.disown.remote(attempt.number)
        attempt.close()
        self.jobs.record(attempt.job, outcome)

    def outcome_of(self, reference: object) -> RunOutcome:
        """Return how a task ended; one that could not answer has died."""
        errors = self.ray.exceptions
        try:
            outcome: RunOutcome = self.ray.get(reference)
        except errors.RayTaskError as error:  # not of the run, whose errors become an outcome
            return RunOutcome("failed", str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            kind = type(error).__name__
            return RunOutcome("left" if self.stopping else "died", f"its worker died ({kind})")

        if outcome == RunOutcome("ended", "stopped") and not self.stopping:
            return RunOutcome("died", "its worker was asked to stop")
        return outcome


def settings_for_tasks(runtime: Runtime, cpus_per_run: float) -> dict[str, Any]:
    """Return the runtime as a node gets it: threads and decoders by the CPUs of a run."""
    share = max(1, int(cpus_per_run))
    decoders = min(MAX_DECODERS, share) if runtime.decoders is None else runtime.decoders
    settings = asdict(replace(runtime, threads=runtime.threads or share, decoders=decoders))
    settings["data_root"] = runtime.data_root.absolute()
    return settings
