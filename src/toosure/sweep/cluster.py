"""Runs on a Ray cluster: one task a run, tried again elsewhere when its worker or node dies."""

import importlib
import itertools
import math
import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toosure.data.image_files import MAX_DECODERS
from toosure.runs import RunWriter
from toosure.runs.files import is_locked
from toosure.sweep.folders import Load, Packer, place
from toosure.sweep.jobs import Job, Jobs, Result, Sweep
from toosure.sweep.node import Mailbox, Task, carry_out_task, sees
from toosure.sweep.workers import skip_finished
from toosure.train import Means
from toosure.train.interrupt import Stop, interruptible

SPARE = 4  # tasks that wait at the cluster, so that no node waits for us


@dataclass(frozen=True)
class Cluster:
    """Name a Ray cluster, and what a run takes of it.

    `address` is "ray" for the cluster of this machine (one is started where there is none),
    "host:port" from one of its nodes, or "ray://host:port" from anywhere. Where not all nodes see
    the folder of the runs (`shared`, found out unless said), it is brought back from them.
    """

    address: str = "ray"
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0
    shared: bool | None = None

    def __post_init__(self) -> None:
        if not self.address:
            raise ValueError(
                "a cluster needs an address: ray, host:port or ray://host:port; got ''"
            )
        needs = (self.cpus_per_run, self.gpus_per_run)
        if not all(math.isfinite(need) and need >= 0 for need in needs):
            raise ValueError(
                "CPUs and GPUs per run must be finite and must not be negative; got "
                f"{self.cpus_per_run:g} and {self.gpus_per_run:g}"
            )
        if self.gpus_per_run > 1 and self.gpus_per_run % 1:
            raise ValueError(
                f"GPUs per run are a share of one or a whole number; got {self.gpus_per_run:g}"
            )


def on_cluster(jobs: Jobs, out: Path, means: Means, cluster: Cluster) -> Sweep:
    """Carry out the runs as tasks of a Ray cluster."""
    out = out.absolute()
    for job in jobs.all:
        job.folder = out / job.config.name
    skip_finished(jobs, out, means)
    if jobs.left:
        with connected(cluster.address), interruptible() as stop, token_in(out) as token:
            drive(jobs, out, means, cluster, token, stop)
    return jobs.sweep()


def drive(jobs: Jobs, out: Path, means: Means, cluster: Cluster, token: str, stop: Stop) -> None:
    """Let the driver work; an error of Ray that is not of a task is the loss of its head."""
    try:
        Driver(jobs, out, means, cluster, token).go(stop)
    except (import_ray().exceptions.RayError, ConnectionError) as error:
        raise ValueError(
            f"the cluster's head was lost ({type(error).__name__}): repeat the command once it is "
            "back, and the runs go on from their checkpoints"
        ) from error


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Join the cluster, and leave it if it was not joined before."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    where = {} if address == "ray" else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"no Ray cluster lets us in at {address!r}: {first} (one that asks for a token needs "
            "RAY_AUTH_MODE=token here, too)"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Return the package, or say how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ValueError(
            "sweeps on Ray need its package: pip install 'toosure[ray]', or use --workers"
        ) from error


@contextmanager
def token_in(out: Path) -> Iterator[str]:
    """Leave a file in the folder by which a node can tell that it sees the same one."""
    token = out / f".sweep-{uuid.uuid4().hex}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        token.touch()
    except OSError as error:
        raise ValueError(
            f"{out} cannot be written ({error.strerror}): name another folder for the runs"
        ) from error
    try:
        yield token.name
    finally:
        token.unlink(missing_ok=True)


@dataclass
class Attempt:
    """A run on the cluster; the driver is its folder's writer where the folder is brought back."""

    number: int
    job: Job
    writer: RunWriter | None = None
    heard: bool = False  # whether it has begun, as far as one knows

    def close(self) -> None:
        """Let others write the folder."""
        if self.writer is not None:
            self.writer.close()


class Driver:
    """Hand out tasks, hear of them, and bring back what they wrote."""

    def __init__(self, jobs: Jobs, out: Path, means: Means, cluster: Cluster, token: str) -> None:
        self.ray = ray = import_ray()
        self.jobs, self.out, self.cluster, self.token = jobs, out, cluster, token
        share = max(1, int(cluster.cpus_per_run))
        decoders = min(MAX_DECODERS, share) if means.decoders is None else means.decoders
        self.means = asdict(replace(means, threads=means.threads or share, decoders=decoders))
        self.means["data_root"] = means.data_root.absolute()
        self.mailbox = (
            ray.remote(Mailbox)
            .options(num_cpus=0, resources={"node:__internal_head__": 0.001})  # lives with it
            .remote()
        )
        self.task = ray.remote(carry_out_task).options(
            num_cpus=cluster.cpus_per_run, num_gpus=cluster.gpus_per_run, max_retries=0
        )
        self.needs = {"CPU": cluster.cpus_per_run, "GPU": cluster.gpus_per_run}
        self.shared = self.all_see() if cluster.shared is None else cluster.shared
        self.numbers = itertools.count()
        self.attempts: dict[int, Attempt] = {}
        self.references: dict[Any, Attempt] = {}
        self.stopping = False

    def all_see(self) -> bool:
        """Ask every node whether it sees our folder."""
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        nodes = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        ask = self.ray.remote(sees)
        asked = [
            ask.options(num_cpus=0, scheduling_strategy=strategy(node, soft=False)).remote(
                self.out / self.token
            )
            for node in nodes
        ]
        return all(self.ray.get(asked))

    def go(self, stop: Stop) -> None:
        """Keep the cluster busy until nothing is left, or until each run has its checkpoint."""
        if any(self.needs.values()) and not self.slots():
            self.jobs.show.say("no node has the CPUs and GPUs of a run now; waiting for one")
        try:
            while self.jobs.under_way or (self.jobs.waiting and not self.stopping):
                if stop.asked and not self.stopping:
                    self.stop()
                if not self.stopping:
                    self.hand_out()
                self.hear(self.ready())
        finally:
            for attempt in self.attempts.values():
                attempt.close()

    def stop(self) -> None:
        """Ask the runs to stop, and take back those that have not begun: no node may ever come.

        One that begins all the same is told to stop by the answer to its first letter.
        """
        self.stopping = True
        self.jobs.show.say("stopping: the runs write checkpoints; again to end at once")
        self.ray.get(self.mailbox.stop.remote())
        self.hear([])
        for reference, attempt in list(self.references.items()):
            if not attempt.heard:
                self.ray.cancel(reference)
                self.take_back(reference, Result("left"))

    def slots(self) -> int:
        """Return how many runs the cluster can take at once."""
        needs = self.needs
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(
            int(min(node.get(name, 0) // need for name, need in needs.items() if need))
            for node in nodes
            if any(needs.values())
        )

    def hand_out(self) -> None:
        """Submit as many runs as the cluster can take, and a few more."""
        room = self.slots() + SPARE
        while len(self.references) < room and (job := self.jobs.next()):
            attempt = Attempt(next(self.numbers), job)
            try:
                load = None if self.shared else self.lend(attempt)
            except ValueError as error:  # held by another, or damaged
                attempt.close()
                kind = "busy" if is_locked(job.folder) else "failed"
                self.jobs.take_back(job, Result(kind, str(error)))
                continue
            task = Task(
                attempt.number, job.config, self.means, self.out, self.token, Path.cwd(), load,
                sys.argv,
            )  # fmt: skip
            self.attempts[attempt.number] = attempt
            self.references[self.task.remote(task, self.mailbox)] = attempt

    def lend(self, attempt: Attempt) -> Load:
        """Become the writer of the folder, and return what is in it."""
        job = attempt.job
        attempt.writer = RunWriter(job.folder, asdict(job.config))
        return Packer(job.folder).pack()

    def ready(self) -> list[Any]:
        """Wait a moment for tasks to end."""
        if not self.references:
            time.sleep(0.2)
            return []
        waiting = list(self.references)
        return self.ray.wait(waiting, num_returns=len(waiting), timeout=0.5)[0]

    def hear(self, ready: list[Any]) -> None:
        """Read the letters first, the last of the ended tasks among them; then take runs back."""
        for number, events in self.ray.get(self.mailbox.take.remote()):
            if number in self.attempts:
                self.attempts[number].heard = True
                for event in events:
                    self.tell(self.attempts[number], event)
        for reference in ready:
            self.take_back(reference, self.result_of(reference))

    def take_back(self, reference: Any, result: Result) -> None:
        """Let go of an attempt; what it may still say is not read."""
        attempt = self.references.pop(reference)
        del self.attempts[attempt.number]
        if result.kind == "died":
            self.mailbox.disown.remote(attempt.number)
        attempt.close()
        self.jobs.take_back(attempt.job, result)

    def tell(self, attempt: Attempt, event: dict[str, Any]) -> None:
        if event["event"] == "files":
            assert attempt.writer is not None
            with attempt.writer.writing():
                place(event["load"], attempt.job.folder)
        else:
            if "path" in event:  # where it is here
                event = {**event, "path": str(attempt.job.folder)}
            self.jobs.hear(attempt.job, event)

    def result_of(self, reference: Any) -> Result:
        """Return how a task ended; one that did not live to say so has died."""
        errors = self.ray.exceptions
        try:
            result = self.ray.get(reference)
        except errors.RayTaskError as error:  # not of the run, which turns its own into a result
            return Result("failed", str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            kind = "left" if self.stopping else "died"
            return Result(kind, f"its worker died ({type(error).__name__})")
        if result == Result("ended", "stopped") and not self.stopping:
            return Result("died", "its worker was asked to stop")
        return result
