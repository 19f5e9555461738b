"""Train every run of a sweep; skip complete ones, and go on after a failure."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from toosure.config import RunConfig
from toosure.processes import Processes, join
from toosure.sweep.cluster import Cluster
from toosure.sweep.driver import on_cluster
from toosure.sweep.jobs import Changes, Jobs, Sweep
from toosure.sweep.pool import with_workers
from toosure.sweep.run_one import DataCache, run_one
from toosure.train import ProgressListener, Runtime
from toosure.train.interrupt import Stop, interruptible
from toosure.train.rank_zero import exit_if_unreachable

PATIENCE = 120.0  # seconds that a shared file system may hold the lock of a dead node


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path = "runs",
    runtime: Runtime | None = None,
    listener: ProgressListener | None = None,
    workers: int = 1,
    on: Cluster | str | None = None,
    deadline: float | None = None,
    changes: Callable[[RunConfig], Changes] = lambda _: {},
) -> Sweep:
    """Train every run; repeating a sweep finishes what is missing.

    With `workers` processes on this machine, runs are trained side by side. Each uses its share of
    the cores, unless `runtime.threads` says how many; on a CPU, runs with equally many threads are
    equal bit for bit. With `on`, a `Cluster` or its address, the runs are tasks on Ray. After
    `deadline`, a time of `time.monotonic`, no run is started; on Ray, none is submitted. `changes`
    returns what the runtime of a run differs in, as `{"graph": False}`.

    >>> import tempfile
    >>> from toosure.config import sweep_of
    >>> configs = sweep_of(data=["digits:train=100"], steps=[2], seed=[0, 1])
    >>> [run.status for run in sweep(configs, tempfile.mkdtemp()).runs]
    ['complete', 'complete']
    """
    runtime = runtime or Runtime()
    listener = listener or ProgressListener()
    out = Path(out)
    check_exclusive(workers, on)

    if workers == 1 and on is None:
        if not join(runtime.torch_device).first:
            listener = ProgressListener()
        jobs = Jobs(configs, out, listener, deadline=deadline, changes=changes)
        return one_by_one(jobs, out, runtime)

    jobs = Jobs(configs, out, listener, PATIENCE, deadline, changes)
    if on is None:
        return with_workers(jobs, out, runtime, workers)
    cluster = Cluster(on) if isinstance(on, str) else on
    return on_cluster(jobs, out, runtime, cluster)


def check_exclusive(workers: int, on: Cluster | str | None) -> None:
    """Raise if two ways to train many runs exclude each other."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}")
    if workers > 1 and on is not None:
        raise ValueError(
            "workers run on this machine, and `on` names a cluster: use one of the two"
        )
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and (workers > 1 or on is not None):
        raise ValueError(
            f"torchrun started {os.environ['WORLD_SIZE']} processes for one run at a time; workers "
            "and clusters run several: use one of the two"
        )


def one_by_one(jobs: Jobs, out: Path, runtime: Runtime) -> Sweep:
    """Train the runs in this process, one after another."""
    cache = DataCache(runtime)
    processes = join(runtime.torch_device)
    with interruptible() as stop:
        while jobs.left and not wants_to_stop(stop, processes):
            if is_late(jobs, processes):
                jobs.drop_waiting()
                break

            job = jobs.next()
            if job is None:  # another process writes the remaining ones
                time.sleep(0.1)
                continue

            outcome = run_one(job.config, out, job.own(runtime), job.listener, cache)
            jobs.record(job, outcome)
    return jobs.sweep()


def is_late(jobs: Jobs, processes: Processes) -> bool:
    """Whether the deadline has passed by the clock of any process."""
    with exit_if_unreachable(processes):
        return processes.any(jobs.is_late)[0]


def wants_to_stop(stop: Stop, processes: Processes) -> bool:
    """Whether any process was asked to stop: all must begin the next run, or none."""
    with exit_if_unreachable(processes):
        return processes.any(stop.requested)[0]
