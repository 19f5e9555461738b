"""The progress of a run as events: plain records that are sent to another process."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.finite import json_ready
from toosure.runs.row_reader import Row
from toosure.train import ProgressListener

TICK_INTERVAL = 0.2  # seconds between two events about the steps of a run
Event = dict[str, Any]


class EventSender(ProgressListener):
    """Send the progress of a run as events; `dispatch` calls a listener in the other process."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self.send = send
        self.last_tick = 0.0

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.send({"event": "begin", "path": str(path), "step": step})

    def row(self, row: Row) -> None:
        self.send({"event": "row", "row": json_ready(row)})

    def tick(self, step: int) -> None:
        if time.monotonic() - self.last_tick > TICK_INTERVAL:
            self.last_tick = time.monotonic()
            self.send({"event": "tick", "step": step})

    def message(self, message: str) -> None:
        self.send({"event": "say", "message": message})

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.send({"event": "end", "path": str(path), "outcome": outcome})


def dispatch(event: Event, config: RunConfig, listener: ProgressListener) -> None:
    """Call the method of the listener that an `EventSender` was called with."""
    match event["event"]:
        case "begin":
            listener.begin(config, Path(event["path"]), event["step"])
        case "row":
            listener.row(event["row"])
        case "tick":
            listener.tick(event["step"])
        case "say":
            listener.message(event["message"])
        case "end":
            listener.end(Path(event["path"]), event["outcome"])
