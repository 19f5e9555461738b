"""Ctrl-C requests that a run stops after its step, so that a checkpoint can be written."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Stop:
    """Whether a stop was requested."""

    requested: bool = False

    def handle(self, signal_number: int, frame: object) -> None:
        """Note the request; the second one is obeyed at once."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Inside, SIGINT and SIGTERM only set `stop.requested`; only the main thread can do so.

    Nested blocks share one `Stop`: a request to a sweep also stops its run, and the reverse.
    """
    outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(outer, Stop):
        yield outer
        return

    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    before = {s: signal.signal(s, stop.handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
