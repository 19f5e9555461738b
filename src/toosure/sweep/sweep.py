"""Carry out a sweep: complete runs are skipped, what fails does not stop the rest."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from toosure.config import RunConfig
from toosure.processes import Processes, join
from toosure.sweep.carry_out import Loaded, carry_out
from toosure.sweep.cluster import Cluster, on_cluster
from toosure.sweep.jobs import Jobs, Sweep
from toosure.sweep.workers import with_workers
from toosure.train import Means
from toosure.train.bystander import reaching
from toosure.train.interrupt import Stop, interruptible
from toosure.train.show import Show

PATIENCE = 120.0  # seconds: a shared file system may hold a dead node's lock so long


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path = "runs",
    means: Means | None = None,
    show: Show | None = None,
    workers: int = 1,
    on: Cluster | str | None = None,
) -> Sweep:
    """Carry out every run; repeating a sweep finishes what is missing.

    With `workers`, so many processes on this machine take the runs side by side. Each has its share
    of the cores as threads, unless `means.threads` says how many: on a CPU, runs are equal bit for
    bit where they had equally many threads. With `on`, a `Cluster` or the address of one, they are
    tasks on Ray.

    >>> import tempfile
    >>> from toosure.config import sweep_of
    >>> configs = sweep_of(data=["digits:train=100"], steps=[2], seed=[0, 1])
    >>> [run.status for run in sweep(configs, tempfile.mkdtemp()).runs]
    ['complete', 'complete']
    """
    means, show, out = means or Means(), show or Show(), Path(out)
    check(workers, on)
    if workers == 1 and on is None:
        show = show if join(means.torch_device).first else Show()
        return one_by_one(Jobs(configs, out, show), out, means)
    jobs = Jobs(configs, out, show, PATIENCE)
    if on is None:
        return with_workers(jobs, out, means, workers)
    return on_cluster(jobs, out, means, Cluster(on) if isinstance(on, str) else on)


def check(workers: int, on: Cluster | str | None) -> None:
    """Raise where the ways to run many exclude each other."""
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


def one_by_one(jobs: Jobs, out: Path, means: Means) -> Sweep:
    """Carry out the runs in this process, one after another."""
    loaded, processes = Loaded(means), join(means.torch_device)
    with interruptible() as stop:
        while jobs.left and not wants_to_stop(stop, processes):
            job = jobs.next()
            if job is None:
                time.sleep(0.1)
                continue
            jobs.take_back(job, carry_out(job.config, out, means, job.show, loaded))
    return jobs.sweep()


def wants_to_stop(stop: Stop, processes: Processes) -> bool:
    """Whether any process was asked to stop: all must begin the next run, or none."""
    with reaching(processes):
        return processes.any(stop.asked)[0]
