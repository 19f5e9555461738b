"""Runs side by side on this machine: processes that take the next run when they are done with one.

Each worker hangs on two pipes. When a worker dies its output ends, and its run is tried again from
the checkpoint; when we die its input ends, and it writes a checkpoint and ends too.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from toosure.data.image_files import MAX_DECODERS
from toosure.sweep.carry_out import Loaded, carry_out
from toosure.sweep.jobs import Job, Jobs, Result, Sweep, is_finished
from toosure.train import Means
from toosure.train.interrupt import Stop, interruptible

START = "from toosure.sweep.worker import main; main()"


def with_workers(jobs: Jobs, out: Path, means: Means, count: int) -> Sweep:
    """Carry out the runs in `count` processes."""
    skip_finished(jobs, out, means)
    with interruptible() as stop:
        pool = Pool(jobs, out, means, count)
        try:
            pool.go(stop)
        except KeyboardInterrupt:
            pool.kill()
            raise
        finally:
            pool.end()
    return jobs.sweep()


def skip_finished(jobs: Jobs, out: Path, means: Means) -> None:
    """Take back at once what needs no worker."""
    for job in [job for job in jobs.waiting if is_finished(job.folder)]:
        jobs.waiting.remove(job)
        jobs.take_back(job, carry_out(job.config, out, means, job.show, Loaded(means)))


class Pool:
    """The workers of a sweep, and what they say."""

    def __init__(self, jobs: Jobs, out: Path, means: Means, count: int) -> None:
        self.jobs, self.out, self.count = jobs, out, count
        self.settings = [settings_of(number, means, count) for number in range(count)]
        self.workers: dict[int, Worker] = {}
        self.leaving: list[Worker] = []
        self.said: queue.Queue[tuple[Worker, dict[str, Any] | None]] = queue.Queue()

    def go(self, stop: Stop) -> None:
        """Keep the workers busy until nothing is left, or until each has written its checkpoint."""
        stopping = False
        while self.jobs.under_way or (self.jobs.waiting and not stopping):
            if stop.asked and not stopping:
                stopping = True
                self.jobs.show.say("stopping: the runs write checkpoints; again to end at once")
                self.close()
            if not stopping:
                self.give_out()
            with suppress(queue.Empty):
                worker, event = self.said.get(timeout=0.2)
                self.hear(worker, event, stopping)

    def give_out(self) -> None:
        """Give every idle worker a run, and start workers while there are too few."""
        for number in range(self.count):
            worker = self.workers.get(number)
            if worker is not None and worker.job is not None:
                continue
            job = self.jobs.next()
            if job is None:
                return
            if worker is None:
                worker = Worker(number, self.out, self.settings[number], self.said)
                self.workers[number] = worker
            worker.take(job)

    def hear(self, worker: "Worker", event: dict[str, Any] | None, stopping: bool) -> None:
        """Pass on what a worker says, and take back its run when it is done or dead."""
        job = worker.job
        if event is None:
            self.forget(worker)
            result = Result("left" if stopping else "died", worker.wait())
        elif event["event"] == "result":
            result = Result(event["kind"], event["said"])
            if event["last"] and not stopping:
                self.forget(worker)  # it ends
            if result == Result("ended", "stopped") and not stopping:
                result = Result("died", "its worker was asked to stop")
        elif job is not None:
            return self.jobs.hear(job, event)
        if job is not None:
            worker.job = None
            self.jobs.take_back(job, result)
        return None

    def forget(self, worker: "Worker") -> None:
        """Give its place to another; its end is waited for with all others'."""
        if self.workers.get(worker.number) is worker:
            self.leaving.append(self.workers.pop(worker.number))

    def close(self) -> None:
        """Let the workers end: those with a run write its checkpoint first."""
        for worker in self.workers.values():
            worker.close()

    def kill(self) -> None:
        for worker in self.workers.values():
            worker.process.kill()

    def end(self) -> None:
        self.close()
        for worker in [*self.workers.values(), *self.leaving]:
            worker.wait()


class Worker:
    """A process, its pipes, and the run it has."""

    def __init__(
        self, number: int, out: Path, settings: dict[str, Any], said: "queue.Queue[Any]"
    ) -> None:
        self.number, self.said = number, said
        self.job: Job | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | surroundings(settings["threads"]),
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.send({"argv": sys.argv, "out": str(out), "means": settings})

    def take(self, job: Job) -> None:
        self.job = job
        self.send(asdict(job.config))

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it died: its output tells
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def listen(self) -> None:
        """Queue what it says; at the end of that, it is dead."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # the last words of one that was killed may be torn
                    self.said.put((self, json.loads(line)))
        self.said.put((self, None))

    def wait(self) -> str:
        """Wait for its end, after which the folder is free, and say how it ended."""
        self.close()
        code = self.process.wait()
        self.listener.join()
        if code < 0:
            return f"its worker was killed ({signal.Signals(-code).name})"
        return f"its worker ended with code {code}"

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()


def settings_of(number: int, means: Means, count: int) -> dict[str, Any]:
    """Return the means of one worker: its share of the cores, and its GPU where there are many."""
    settings = {**asdict(means), "data_root": str(means.data_root)}
    share = max(1, cores() // count)
    if means.threads is None:
        settings["threads"] = min(torch.get_num_threads(), share)
    if means.decoders is None:
        settings["decoders"] = min(MAX_DECODERS, share)
    if means.device in (None, "cuda") and torch.cuda.device_count() > 1:
        settings["device"] = f"cuda:{number % torch.cuda.device_count()}"
    return settings


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def surroundings(threads: int) -> dict[str, str]:
    """Return a worker's environment: modules are found where we find them, threads are few."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
