"""Signals to a run: it stops after a checkpoint, and goes on if the terminal is closed."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

HANG_UP = getattr(signal, "SIGHUP", None)  # the terminal was closed; Windows has none
STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE = 1.0  # seconds for the main thread to obey a second signal, before the process is ended


@dataclass
class Stop:
    """Whether a stop was requested.

    Python runs `handle` in the main thread, between two operations. During a long torch call
    `SignalWatcher` answers instead.
    """

    requested: bool = False
    handled: int = 0  # signals that the main thread has seen
    received: int = 0  # signals that the watching thread has seen
    answered: threading.Lock = field(default_factory=threading.Lock)  # taken by the first answer
    unwinding: threading.Event = field(default_factory=threading.Event)  # the main thread is ending

    def handle(self, signal_number: int, frame: object) -> None:
        """Note the request and answer it; a second one is obeyed at once."""
        self.handled += 1
        if max(self.handled, self.received) > 1:
            self.unwinding.set()
            raise KeyboardInterrupt
        self.request(signal_number)

    def request(self, signal_number: int) -> None:
        """Note a request, and print a line unless one was printed."""
        self.requested = True
        if self.answered.acquire(blocking=False):
            print_line(
                f"toosure: {signal.Signals(signal_number).name}: after the step or measurement "
                "under way a checkpoint is written, then training stops; a second signal ends it "
                "at once"
            )

    def handle_hang_up(self, signal_number: int, frame: object) -> None:
        """Go on without the terminal."""
        print_line(
            "toosure: SIGHUP: the terminal was closed and training goes on; "
            f"`kill {os.getpid()}` stops it with a checkpoint"
        )


class SignalWatcher:
    """A thread that answers signals while the main thread is inside one long operation.

    The operating system's handler writes the number of each signal to a socket at once
    (`signal.set_wakeup_fd`), and the thread reads it there.
    """

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        self.thread = threading.Thread(target=self.watch, name="toosure signals", daemon=True)

    def start(self) -> bool:
        """Start watching; return False if something else, such as an event loop, does so."""
        before = signal.set_wakeup_fd(self.writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            self.reader.close()
            self.writer.close()
            return False
        self.thread.start()
        return True

    def close(self) -> None:
        """Stop watching."""
        signal.set_wakeup_fd(-1)
        self.writer.close()  # ends the thread
        self.thread.join()
        self.reader.close()

    def watch(self) -> None:
        """Answer each signal; end the process if the main thread cannot obey the second one."""
        while numbers := self.reader.recv(64):
            for number in numbers:
                if number not in STOPPING:
                    continue

                self.stop.received += 1
                self.stop.request(number)
                if self.stop.received > 1 and not is_interactive():
                    self.end_process()

    def end_process(self) -> None:
        """End the process, unless the main thread does so itself; a third signal does not wait."""
        if self.stop.received == 2 and self.stop.unwinding.wait(GRACE):
            return
        print_line("Ended at once; repeat the command to go on from the last checkpoint.")
        os._exit(130)


def is_interactive() -> bool:
    """Whether this is a notebook or a prompt, which must survive a stopped run."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def print_line(sentence: str) -> None:
    """Write a line to standard error without Python's buffers, which may be in use.

    A closed stream is ignored.
    """
    with suppress(OSError):
        os.write(2, f"{sentence}\n".encode())


def current_stop() -> Stop | None:
    """Return the `Stop` that receives this process's signals, if there is one."""
    stop = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return stop if isinstance(stop, Stop) else None


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Let SIGINT and SIGTERM only set `stop.requested` inside; works in the main thread only.

    SIGHUP, which a closed terminal sends, stops nothing; if it was ignored before (nohup), it still
    is. Nested blocks share one `Stop`: a request to a sweep also stops its run, and the other way
    round.
    """
    outer = current_stop()
    if outer is not None:
        yield outer
        return

    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(STOPPING, stop.handle)
    if HANG_UP is not None and signal.getsignal(HANG_UP) is not signal.SIG_IGN:
        handlers[HANG_UP] = stop.handle_hang_up

    watcher = SignalWatcher(stop)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    watching = watcher.start()
    try:
        yield stop
    finally:
        if watching:
            watcher.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def detach_watcher() -> None:
    """Detach a forked child from its parent's watcher: the child has signals of its own."""
    if current_stop() is not None:
        with suppress(ValueError):  # not the main thread: nothing was set there
            signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=detach_watcher)
