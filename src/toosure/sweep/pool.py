"""Runs side by side on this machine, in worker processes.

Each worker takes one run after another, and is connected by two pipes. When a worker dies, its
output ends, and its run is tried again from the checkpoint. When the main process dies, the input
of the workers ends, and they write a checkpoint and end, too.
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

from toosure.data.image_files import MAX_DECODERS, available_cores
from toosure.sweep.events import Event
from toosure.sweep.jobs import Job, Jobs, RunOutcome, Sweep, is_finished
from toosure.sweep.run_one import DataCache, run_one
from toosure.train import Runtime
from toosure.train.interrupt import Stop, interruptible

START = "from toosure.sweep.worker import main; main()"


def with_workers(jobs: Jobs, out: Path, runtime: Runtime, count: int) -> Sweep:
    """Train the runs in `count` processes."""
    if jobs.is_late:
        jobs.drop_waiting()
    skip_finished(jobs, out, runtime)

    with interruptible() as stop:
        pool = Pool(jobs, out, runtime, count)
        try:
            pool.go(stop)
        except KeyboardInterrupt:
            pool.kill()
            raise
        finally:
            pool.end()
    return jobs.sweep()


def skip_finished(jobs: Jobs, out: Path, runtime: Runtime) -> None:
    """Record at once the runs that have ended and need no worker."""
    for job in [job for job in jobs.waiting if is_finished(job.folder)]:
        jobs.waiting.remove(job)
        outcome = run_one(job.config, out, job.own(runtime), job.listener, DataCache(runtime))
        jobs.record(job, outcome)


class Pool:
    """The workers of a sweep, and the events they send."""

    def __init__(self, jobs: Jobs, out: Path, runtime: Runtime, count: int) -> None:
        self.jobs = jobs
        self.out = out
        self.count = count
        self.settings = [settings_of(number, runtime, count) for number in range(count)]
        self.workers: dict[int, Worker] = {}
        self.leaving: list[Worker] = []
        self.events: EventQueue = queue.Queue()

    def go(self, stop: Stop) -> None:
        """Keep the workers busy until nothing is left, or until each has written its checkpoint."""
        stopping = False
        while self.jobs.under_way or (self.jobs.waiting and not stopping):
            if stop.requested and not stopping:
                stopping = True
                self.jobs.listener.message(
                    "stopping: the runs write checkpoints; again to end at once"
                )
                self.close()
            if not stopping:
                self.hand_out()

            with suppress(queue.Empty):
                worker, event = self.events.get(timeout=0.2)
                self.handle(worker, event, stopping)

    def hand_out(self) -> None:
        """Give every idle worker a run, and start workers while there are too few."""
        if self.jobs.is_late:
            self.jobs.drop_waiting()
        for number in range(self.count):
            worker = self.workers.get(number)
            if worker is not None and worker.job is not None:
                continue

            job = self.jobs.next()
            if job is None:
                return
            if worker is None:
                worker = Worker(number, self.out, self.settings[number], self.events)
                self.workers[number] = worker
            worker.take(job)

    def handle(self, worker: "Worker", event: Event | None, stopping: bool) -> None:
        """Pass on an event, or record the run of a worker that is done or dead."""
        if event is None:
            self.replace(worker)
            outcome = RunOutcome("left" if stopping else "died", worker.wait())
        elif event["event"] == "outcome":
            outcome = RunOutcome(event["kind"], event["message"])
            if event["last"] and not stopping:
                self.replace(worker)
            if outcome == RunOutcome("ended", "stopped") and not stopping:
                outcome = RunOutcome("died", "its worker was asked to stop")
        else:
            if worker.job is not None:
                self.jobs.receive(worker.job, event)
                worker.stop_run_if_requested()
            return

        job = worker.job
        worker.job = None
        if job is not None:
            self.jobs.record(job, outcome)

    def replace(self, worker: "Worker") -> None:
        """Free the slot of a worker that ends; `end` waits for all of them."""
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
        """Wait until all workers have ended."""
        self.close()
        for worker in [*self.workers.values(), *self.leaving]:
            worker.wait()


class Worker:
    """A worker process, its pipes, and the run it has."""

    def __init__(
        self, number: int, out: Path, settings: dict[str, Any], events: "EventQueue"
    ) -> None:
        self.number = number
        self.events = events
        self.job: Job | None = None

        self.process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment_of(settings["threads"]),
            start_new_session=True,  # Ctrl-C reaches the main process only, which passes it on
        )
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.send({"argv": sys.argv, "out": str(out), "runtime": settings})

    def take(self, job: Job) -> None:
        """Start on a run."""
        self.job = job
        self.send({"config": asdict(job.config), "changes": job.changes})

    def stop_run_if_requested(self) -> None:
        """Ask the process to stop its run, and to wait for the next one."""
        if self.job is not None and self.job.stop_requested:
            self.send({"stop_run": self.job.config.name})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it died; the end of its output tells
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def listen(self) -> None:
        """Queue its events; the end of its output means that it is dead."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # the last line of a killed process may be torn
                    self.events.put((self, json.loads(line)))
        self.events.put((self, None))

    def wait(self) -> str:
        """Wait until the worker has ended and its folder is free; return how it ended."""
        self.close()
        code = self.process.wait()
        self.listener.join()
        if code < 0:
            return f"its worker was killed ({signal.Signals(-code).name})"
        return f"its worker ended with code {code}"

    def close(self) -> None:
        """End its input, which asks it to stop."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()


EventQueue = queue.Queue[tuple[Worker, Event | None]]


def settings_of(number: int, runtime: Runtime, count: int) -> dict[str, Any]:
    """Return the runtime of one worker: its share of the cores, and its GPU of several."""
    settings = {**asdict(runtime), "data_root": str(runtime.data_root)}
    share = max(1, available_cores() // count)
    if runtime.threads is None:
        settings["threads"] = min(torch.get_num_threads(), share)
    if runtime.decoders is None:
        settings["decoders"] = min(MAX_DECODERS, share)
    if runtime.device in (None, "cuda") and torch.cuda.device_count() > 1:
        settings["device"] = f"cuda:{number % torch.cuda.device_count()}"
    return settings


def environment_of(threads: int) -> dict[str, str]:
    """Return a worker's environment: the same path of modules, and a limit on threads."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
