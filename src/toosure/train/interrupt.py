"""Signals to a run: a request to stop waits for its checkpoint, a closed terminal stops nothing."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

HANG_UP = getattr(signal, "SIGHUP", None)  # the terminal was closed; Windows has none


@dataclass
class Stop:
    """Whether a stop was requested."""

    requested: bool = False

    def handle(self, signal_number: int, frame: object) -> None:
        """Note the request and answer it; the second one is obeyed at once."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        say(
            f"{signal.Signals(signal_number).name}: after the step or measurement under way a "
            "checkpoint is written, then training stops; a second signal ends it at once"
        )

    def handle_hang_up(self, signal_number: int, frame: object) -> None:
        """Go on without the terminal."""
        say(
            f"SIGHUP: the terminal was closed and training goes on; `kill {os.getpid()}` stops it "
            "with a checkpoint"
        )


def say(sentence: str) -> None:
    """Write a line to standard error, past Python's buffers: a signal may come while they are full.

    Nobody may be there to read it.
    """
    with suppress(OSError):
        os.write(2, f"toosure: {sentence}\n".encode())


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Inside, SIGINT and SIGTERM only set `stop.requested`; only the main thread can do so.

    SIGHUP, which a closed terminal sends, is answered and stops nothing; where it is ignored
    already (nohup), it stays so. Nested blocks share one `Stop`: a request to a sweep also stops
    its run, and the reverse.
    """
    outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(outer, Stop):
        yield outer
        return

    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    handlers: dict[int, Callable[[int, object], None]] = {
        signal.SIGINT: stop.handle,
        signal.SIGTERM: stop.handle,
    }
    if HANG_UP is not None and signal.getsignal(HANG_UP) is not signal.SIG_IGN:
        handlers[HANG_UP] = stop.handle_hang_up

    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
