"""Read the rows of many long runs with two processes: this one reads half, a second the rest."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path

from toosure.runs.row_reader import RowReader
from toosure.runs.run import Run

MIN_BYTES = 64 << 20  # of rows that make a second process worthwhile
BYTES_AT_START = 40 << 20  # what this process reads while the second one starts


def read_together(runs: Sequence[Run]) -> None:
    """Read the rows of all runs; rows that the second process fails on are read on demand."""
    sizes = {run.path: size_of(run.path / "metrics.jsonl") for run in runs}
    if sum(sizes.values()) < MIN_BYTES or (os.cpu_count() or 1) < 2 or not sys.executable:
        return

    # The longest first, each to the process with less to read.
    own: list[Run] = []
    others: list[Run] = []
    own_bytes = 0
    other_bytes = BYTES_AT_START
    for run in sorted(runs, key=lambda each: sizes[each.path], reverse=True):
        if own_bytes <= other_bytes:
            own.append(run)
            own_bytes += sizes[run.path]
        else:
            others.append(run)
            other_bytes += sizes[run.path]
    if not others:
        return

    command = [sys.executable, "-m", "toosure.runs.read_together"]
    question = json.dumps([[str(run.path), run.follow_links] for run in others])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # it ended at once; its return code is checked below
            process.stdin.write(question.encode())
            process.stdin.close()
        with one_thread():
            for run in own:
                run.refresh()
        answer = process.stdout.read()

    if process.returncode == 0:
        for run, reader in zip(others, pickle.loads(answer), strict=True):
            run.take_reader(reader)


def one_thread() -> AbstractContextManager[object]:
    """Limit SciPy's parser of numbers to one thread: each process has one core.

    On blocks of rows, threads cost more than they gain.
    """
    from threadpoolctl import threadpool_limits

    import_module("scipy.io")  # load it first: only loaded libraries are limited
    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits


def size_of(file: Path) -> int:
    """Return the size of a regular file in bytes; 0 for anything else."""
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:
        return 0


def main() -> None:
    """Read the runs that standard input names, and write their readers to standard output."""
    readers = []
    with one_thread():
        for path, follow_links in json.load(sys.stdin):
            reader = RowReader(Path(path) / "metrics.jsonl", follow_links)
            reader.refresh()
            readers.append(reader)
    sys.stdout.buffer.write(pickle.dumps(readers, protocol=pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
