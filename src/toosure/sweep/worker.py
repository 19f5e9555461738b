"""A worker process: runs come in by its standard input, what happens goes out by its output.

The end of the input means stop: the sweep is over, or whoever held the other end has died. A run
that is going on then writes its checkpoint first.
"""

import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.sweep.carry_out import Loaded, carry_out
from toosure.sweep.telling import Event, Telling
from toosure.train import Means
from toosure.train.interrupt import Stop, interruptible


def main() -> None:
    """Work until the input ends or a signal asks to stop."""
    answers = os.dup(1)
    if hasattr(os, "register_at_fork"):  # a child that decodes images must not keep it open
        os.register_at_fork(after_in_child=partial(os.close, answers))
    os.dup2(2, 1)  # what a model prints is not an answer
    with interruptible() as stop, open(0, "rb", buffering=0, closefd=False) as asked:
        start = json.loads(asked.readline() or b"null")
        if start is None:
            return
        sys.argv = start["argv"]  # what the user typed, for environment.json
        means, out = Means(**start["means"]), Path(start["out"])
        runs: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=listen, args=(asked, runs, stop), daemon=True).start()
        loaded = Loaded(means)
        while (settings := runs.get()) is not None and not stop.asked:
            show = Telling(lambda event: send(answers, event, stop))
            result = carry_out(RunConfig.of(settings), out, means, show, loaded)
            spoilt = result.kind == "failed" and means.torch_device.type == "cuda"
            last = stop.asked or spoilt  # an error may leave the GPU unusable for this process
            send(answers, {"event": "result", **asdict(result), "last": last}, stop)
            if last:
                return


def listen(asked: Any, runs: "queue.Queue[Any]", stop: Stop) -> None:
    """Queue what is asked; at the end of it, stop."""
    for line in asked:
        runs.put(json.loads(line))
    stop.asked = True
    runs.put(None)


def send(answers: int, event: Event, stop: Stop) -> None:
    """Write a line; nobody there to read it means stop."""
    line = json.dumps(event).encode() + b"\n"
    try:
        while line:
            line = line[os.write(answers, line) :]
    except OSError:
        stop.asked = True
