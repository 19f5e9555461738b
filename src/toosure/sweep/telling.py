"""What happens to a run, told across processes: plain records there, `Show` on both sides."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.runs.write import plain
from toosure.train.show import Show

TICK = 0.2  # seconds between two words about the same run's steps
Event = dict[str, Any]


class Telling(Show):
    """Pass on what happens as plain records; `tell` says them on the other side."""

    def __init__(self, send: Callable[[Event], None]) -> None:
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


def tell(show: Show, config: RunConfig, event: Event) -> None:
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
