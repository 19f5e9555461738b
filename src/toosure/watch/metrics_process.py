"""Helper processes that compute metrics: threads would hold up training by Python's lock.

A helper reads functions from its standard input, calls them and writes the results. It ends when
its input does, so that it never outlives the process that feeds it.
"""

import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

Answer = TypeVar("Answer")

READY = b"ready\n"
idle: SimpleQueue["MetricsProcess"] = SimpleQueue()
started: list["MetricsProcess"] = []


class MetricsProcess:
    """A process that calls functions one at a time; until it is ready, they are called here."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environment = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
            start_new_session=True,  # Ctrl-C is for us
        )
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether the process has imported everything it needs."""
        answers = self.process.stdout
        assert answers is not None
        if not self._ready and select.select([answers], [], [], 0)[0]:
            self._ready = answers.readline() == READY
        return self._ready

    def __call__(self, function: Callable[[], Answer]) -> Answer:
        """Return what the function returns, or raise what it raises.

        If the process cannot call it, the function is called here.
        """
        try:
            answer = self._ask(packed(function)) if self.ready else None
        except Exception:  # the process is gone, or the function or its result cannot be pickled
            self._ready = False
            self.process.kill()
            answer = None

        if answer is None:
            return function()
        result: Answer
        result, error = answer
        if error is not None:
            raise error
        return result

    def _ask(self, question: bytes) -> Any:
        questions = self.process.stdin
        answers = self.process.stdout
        assert questions is not None and answers is not None
        questions.write(question)
        questions.flush()
        return pickle.load(answers)


class TensorPickler(pickle.Pickler):
    """Pickle tensors as arrays, which takes a third of the time."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def packed(value: object) -> bytes:
    """Return a pickle of a function or a result, by `TensorPickler`."""
    buffer = BytesIO()
    TensorPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def start_processes(count: int) -> None:
    """Start processes until there are `count`; if none can be started, do without."""
    while len(started) < count:
        try:
            started.append(MetricsProcess())
        except OSError:
            return
        idle.put(started[-1])


def in_a_process(function: Callable[[], Answer]) -> Answer:
    """Call a function in an idle process, or here if there is none."""
    try:
        process = idle.get_nowait()
    except Empty:
        return function()
    try:
        return process(function)
    finally:
        idle.put(process)


def serve() -> None:
    """Answer questions until the input ends: the main function of a helper process."""
    torch.set_num_threads(1)
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints must not look like an answer
    answers.write(READY)
    answers.flush()

    while True:
        try:
            function = pickle.load(questions)
        except EOFError:
            return
        result, error = None, None
        try:
            result = function()
        except Exception as problem:
            error = problem
        answers.write(packed((result, error)))
        answers.flush()
