"""Ctrl-C asks a run to stop after its step, so that it can be checkpointed."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Stop:
    """Whether somebody asked to stop."""

    asked: bool = False

    def ask(self, number: int, frame: Any) -> None:
        """Note the wish; the second one is obeyed at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Inside, SIGINT and SIGTERM only set `stop.asked`; only the main thread can do so.

    Inside another, it is the same wish: what a sweep was asked, its run heeds, and the reverse.
    """
    outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(outer, Stop):
        yield outer
        return
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {s: signal.signal(s, stop.ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
