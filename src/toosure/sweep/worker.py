"""A worker process: runs come in by its standard input, what happens goes out by its output.

The end of the input means stop: the sweep is over, or whoever held the other end has died. A run
that is going on then writes its checkpoint first.
"""

import json
import os
import queue
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.runs.write import plain
from toosure.sweep.carry_out import Loaded, carry_out
from toosure.train import Means
from toosure.train.interrupt import Stop, interruptible
from toosure.train.show import Show

TICK = 0.2  # seconds between two words about the same run's steps


class Telling(Show):
    """Pass on what happens as plain records; `tell` puts them into words on the other side."""

    def __init__(self, send: Any) -> None:
        self.send, self.ticked = send, 0.0

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.send({"event": "begin", "path": str(path), "step": step})

    def row(self, row: dict[str, Any]) -> None:
        self.send({"event": "row", "row": {key: plain(value) for key, value in row.items()}})

    def tick(self, step: int) -> None:
        if time.monotonic() - self.ticked > TICK:
            self.ticked = time.monotonic()
            self.send({"event": "tick", "step": step})

    def say(self, message: str) -> None:
        self.send({"event": "say", "message": message})

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.send({"event": "end", "path": str(path), "outcome": outcome})


def tell(show: Show, config: RunConfig, event: dict[str, Any]) -> None:
    """Say what a `Telling` passed on."""
    match event["event"]:
        case "begin":
            show.begin(config, Path(event["path"]), event["step"])
        case "row":
            show.row(event["row"])
        case "tick":
            show.tick(event["step"])
        case "say":
            show.say(event["message"])
        case "end":
            show.end(Path(event["path"]), event["outcome"])


def main() -> None:
    """Work until the input ends or a signal asks to stop."""
    answers = os.dup(1)
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
            send(answers, {"event": "result", **asdict(result)}, stop)
            if result.kind == "failed" and means.torch_device.type == "cuda":
                return  # an error on a GPU may have left it unusable for this process
            if stop.asked:
                return


def listen(asked: Any, runs: "queue.Queue[Any]", stop: Stop) -> None:
    """Queue what is asked; at the end of it, stop."""
    for line in asked:
        runs.put(json.loads(line))
    stop.asked = True
    runs.put(None)


def send(answers: int, event: dict[str, Any], stop: Stop) -> None:
    """Write a line; nobody there to read it means stop."""
    line = json.dumps(event).encode() + b"\n"
    try:
        while line:
            line = line[os.write(answers, line) :]
    except OSError:
        stop.asked = True
