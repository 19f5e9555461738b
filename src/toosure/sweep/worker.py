"""A worker process: runs arrive on its standard input, events leave on its standard output.

The end of the input means stop: the sweep is over, or the main process has died. A run that is
under way writes its checkpoint first.
"""

import json
import os
import queue
import sys
import threading
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from toosure.config import RunConfig
from toosure.sweep.events import Event, EventSender
from toosure.sweep.run_one import DataCache, run_one
from toosure.train import Runtime
from toosure.train.interrupt import Stop, interruptible

Request = dict[str, Any]  # a run: the fields of its "config", the "changes" of its runtime
Senders = dict[str, EventSender]  # of the run under way, by its name


def main() -> None:
    """Work until the input ends or a signal asks to stop."""
    output = os.dup(1)
    if hasattr(os, "register_at_fork"):  # a child that decodes images must not keep it open
        os.register_at_fork(after_in_child=partial(os.close, output))
    os.dup2(2, 1)  # what a model prints must not mix with the events

    with interruptible() as stop, open(0, "rb", buffering=0, closefd=False) as requests:
        start = json.loads(requests.readline() or b"null")
        if start is None:
            return
        sys.argv = start["argv"]  # what the user typed, for environment.json
        runs: queue.Queue[Request | None] = queue.Queue()
        senders: Senders = {}
        threading.Thread(target=listen, args=(requests, runs, senders, stop), daemon=True).start()
        work(Runtime(**start["runtime"]), Path(start["out"]), runs, senders, output, stop)


def work(
    runtime: Runtime,
    out: Path,
    runs: "queue.Queue[Request | None]",
    senders: Senders,
    output: int,
    stop: Stop,
) -> None:
    """Train one run after another."""
    cache = DataCache(runtime)
    while (request := runs.get()) is not None and not stop.requested:
        config = RunConfig.of(request["config"])
        own = replace(runtime, **request["changes"])
        sender = EventSender(lambda event: send(output, event, stop))
        senders[config.name] = sender
        outcome = run_one(config, out, own, sender, cache)
        del senders[config.name]

        # An error may leave the GPU unusable for this process: another must replace it.
        spoilt = outcome.kind == "failed" and runtime.torch_device.type == "cuda"
        last = stop.requested or spoilt
        send(output, {"event": "outcome", **asdict(outcome), "last": last}, stop)
        if last:
            return


def listen(
    requests: BinaryIO, runs: "queue.Queue[Request | None]", senders: Senders, stop: Stop
) -> None:
    """Queue the runs that arrive, and stop runs on request; stop at the end of the input."""
    for line in requests:
        message = json.loads(line)
        if "stop_run" not in message:
            runs.put(message)
        elif (sender := senders.get(message["stop_run"])) is not None:
            sender.stop_requested = True
    stop.requested = True
    runs.put(None)


def send(output: int, event: Event, stop: Stop) -> None:
    """Write an event as a line; a closed pipe means stop."""
    line = json.dumps(event).encode() + b"\n"
    try:
        while line:
            line = line[os.write(output, line) :]
    except OSError:
        stop.requested = True
