"""Speed of runs side by side, and the cost of a large sweep.

    OMP_NUM_THREADS= python benchmarks/sweep.py workers    24 runs: 2 workers, one after another
    OMP_NUM_THREADS= python benchmarks/sweep.py ray        runs of 10 s: two nodes, 2 workers
    OMP_NUM_THREADS= python benchmarks/sweep.py costs      what one run more costs

1. `workers`: default `toosure train` runs on digits, 2,000 steps, seeds 0 to 23; seconds one after
   another (with one thread, and with as many as cores; the faster counts) over seconds on workers,
   starting them included.
2. `ray`: the same run, as many steps as take 10 s; a cluster of two nodes of one CPU each, started
   before; seconds on it over seconds on two workers, joining and starting included, in turns.
3. `costs`: many runs of one step: seconds and files a run, memory of a worker and of the parent,
   seconds to find that nothing is left to do. `letters`: how many a second Ray's mailbox takes.
"""

import argparse
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch

from toosure.config import sweep_of
from toosure.runs import find_runs, summary
from toosure.sweep import sweep
from toosure.train import Runtime

PORT = 6399
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # our nodes' own


def seconds(configs, means, **how):
    """Time a sweep into a new folder."""
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        done = sweep(configs, out, means, **how)
        taken = time.perf_counter() - start
    assert not done.failures and len(done.runs) == len(configs), done.failures
    return taken


def workers(args):
    configs = sweep_of(steps=[args.steps], seed=range(args.runs))
    seconds(configs[:1], Runtime("cpu"))  # warm up
    beside = seconds(configs, Runtime("cpu"), workers=2)
    print(f"2 workers: {beside:.1f} s, n = {args.runs}", flush=True)
    for threads in dict.fromkeys((1, torch.get_num_threads())):
        alone = seconds(configs, Runtime("cpu", threads=threads))
        faster = f"workers are {alone / beside:.2f} times faster"
        print(f"one after another, {threads} threads: {alone:.1f} s; {faster}", flush=True)


def on_ray(args):
    means = Runtime("cpu", threads=1)
    probe = seconds(sweep_of(steps=[400]), means)
    steps = round(400 * args.seconds / probe)
    configs = sweep_of(steps=[steps], seed=range(args.ray_runs))

    ratios = []
    with cluster():
        for _ in range(args.rounds):
            beside = seconds(configs, means, workers=2)
            away = seconds(configs, means, on=f"127.0.0.1:{PORT}")
            ratios.append(away / beside)
            print(f"{len(configs)} runs of {steps} steps: workers {beside:.1f} s, Ray {away:.1f} s")

    low, high = min(ratios), max(ratios)
    print(f"Ray / workers: {median(ratios):.3f} ({low:.3f} to {high:.3f}), rounds = {args.rounds}")


@contextmanager
def cluster():
    """Start two nodes of one CPU."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    head = [
        "--head",
        "--port",
        str(PORT),
        "--include-dashboard",
        "false",
        "--temp-dir",
        str(folder),
    ]

    nodes = []
    try:
        for words in (head, ["--address", f"127.0.0.1:{PORT}"]):
            start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
            start += ["--disable-usage-stats", "--node-ip-address", "127.0.0.1", "--num-cpus", "1"]
            start += ["--object-store-memory", str(200 * 2**20)]
            with open(folder / "log", "ab") as log:
                nodes.append(
                    subprocess.Popen(start, stdout=log, stderr=log, start_new_session=True)
                )
            time.sleep(15)
        yield
    finally:
        for node in nodes:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def costs(args):
    """Tiny runs: what is left is what a run costs beside its steps."""
    small = {"data": ["digits:train=100,val=100"], "model": ["mlp:width=8"], "measure": [()]}
    configs = sweep_of(steps=[1], seed=range(args.many), **small)
    means = Runtime("cpu", threads=1)
    out = Path(tempfile.mkdtemp())
    try:
        before = memory(resource.RUSAGE_SELF)
        start = time.perf_counter()
        sweep(configs, out, means, workers=2)
        first = time.perf_counter() - start
        print(f"{args.many} runs of one step on 2 workers: {1e3 * first / args.many:.0f} ms a run")
        worker, after = memory(resource.RUSAGE_CHILDREN), memory(resource.RUSAGE_SELF)
        print(f"memory: a worker {worker:.0f} MB; parent {before:.0f} MB, then {after:.0f} MB")

        start = time.perf_counter()
        sweep(configs, out, means, workers=2)
        again = time.perf_counter() - start
        print(f"finding all complete: {1e3 * again / args.many:.2f} ms a run")

        start = time.perf_counter()
        _ = [summary(run) for run in find_runs(out)]
        print(f"reading all: {1e3 * (time.perf_counter() - start) / args.many:.2f} ms a run")
    finally:
        shutil.rmtree(out)

    run = sweep_of(steps=[2000])
    with tempfile.TemporaryDirectory() as folder:
        sweep(run, folder, means)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        sizes = {path.relative_to(folder).parts[1]: 0 for path in files}
        for path in files:
            sizes[path.relative_to(folder).parts[1]] += path.stat().st_size
        print(
            f"a digits run of 2,000 steps, 101 rows: {len(files)} files, bytes {json.dumps(sizes)}"
        )


def letters(args):
    """How many letters a second a mailbox takes, from two nodes."""
    import ray

    from toosure.sweep.node import Mailbox

    with cluster():
        ray.init(f"127.0.0.1:{PORT}", logging_level="ERROR", log_to_driver=False)
        box = ray.remote(Mailbox).options(num_cpus=0).remote()

        def write(box, count):
            letter = [{"event": "tick", "step": 1}] * 4
            ray.get([box.post.remote(1, letter) for _ in range(count)])

        task = ray.remote(write)
        ray.get([task.remote(box, 10)] * 2)
        start = time.perf_counter()
        ray.get([task.remote(box, 2000) for _ in range(2)])
        print(f"{4000 / (time.perf_counter() - start):.0f} letters a second, from two nodes")
        ray.shutdown()


def memory(who):
    """Largest resident size so far, in MB."""
    return resource.getrusage(who).ru_maxrss / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"workers": workers, "ray": on_ray, "costs": costs, "letters": letters}
    parser.add_argument("parts", nargs="*", choices=[[], *parts], default=[])
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--ray-runs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=1000)
    arguments = parser.parse_args()
    for part in arguments.parts or parts:
        parts[part](arguments)
