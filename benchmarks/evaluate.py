"""CPU seconds of `toosure evaluate`, one thread, import included.

    python benchmarks/evaluate.py [--rounds 3]

User and system seconds of the process (`resource.getrusage`), the least of a few rounds in turns;
beside them importing torch alone, so that a busy machine can be told from slow code.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ALLOWED = {
    "import torch": None,
    "--help": 0.3,
    "50,000 confidences": 2.5,
    "10,000 x 10 logits": 2.5,
    "50,000 x 1000 logits": 6.0,
}
BEFORE = {"50,000 confidences": 7.0, "10,000 x 10 logits": 6.2, "50,000 x 1000 logits": 10.7}


def write_files(folder):
    """Write the three files of predictions; return the command of each line."""
    rng = np.random.default_rng(0)
    confidence = rng.random(50_000) ** 0.3
    np.savez(
        folder / "c.npz", confidence=confidence, correct=rng.random(50_000) < 0.95 * confidence
    )
    for name, n, classes in (("a", 10_000, 10), ("b", 50_000, 1000)):
        logits = 2 * rng.standard_normal((n, classes), dtype=np.float32)
        known = rng.random(n) < 0.7
        labels = np.where(known, logits.argmax(1), rng.integers(0, classes, n))
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)

    run = [sys.executable, "-m", "toosure"]
    return {
        "import torch": [sys.executable, "-c", "import torch"],
        "--help": [*run, "--help"],
        "50,000 confidences": [*run, "evaluate", str(folder / "c.npz")],
        "10,000 x 10 logits": [*run, "evaluate", str(folder / "a.npz")],
        "50,000 x 1000 logits": [*run, "evaluate", str(folder / "b.npz")],
    }


def cpu_seconds(command):
    """Run a command on one thread; return its user and system seconds."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=os.environ | threads)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        commands = write_files(Path(folder))
        seconds = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                seconds[name].append(cpu_seconds(command))

    print("| | CPU seconds | allowed | before |", "|---|---|---|---|", sep="\n")
    for name, rounds in seconds.items():
        allowed = "" if ALLOWED[name] is None else f"{ALLOWED[name]:g}"
        print(f"| {name} | {min(rounds):.2f} | {allowed} | {BEFORE.get(name, '')} |")


if __name__ == "__main__":
    main()
