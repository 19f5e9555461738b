"""Show on standard error what a command is doing, if it takes longer than two seconds."""

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.status import Status

DELAY = 2.0  # seconds before anything is shown on a terminal
LOG_DELAY = 10.0  # and before a log has a line


class Spinner:
    """Show a spinner with a text and the seconds so far; in a log, one line.

    Work that ends within two seconds shows and imports nothing.
    """

    def __init__(self, text: str, delay: float | None = None) -> None:
        self.text = text
        if delay is None:
            delay = DELAY if sys.stderr.isatty() else LOG_DELAY
        self.started = time.monotonic()
        self.status: Status | None = None
        self.lock = threading.Lock()
        self.timer = threading.Timer(delay, self.show)
        self.timer.daemon = True

    def __enter__(self) -> Self:
        self.timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.timer.cancel()
        with self.lock:
            if self.status is not None:
                self.status.stop()

    def update(self, text: str) -> None:
        """Change the text."""
        self.text = text
        with self.lock:
            if self.status is not None:
                self.status.update(self.line())

    def line(self) -> str:
        return f"{self.text} ({time.monotonic() - self.started:.0f} s)"

    def show(self) -> None:
        """Start the spinner, or print the line."""
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            print(f"toosure: {self.text} ...", file=sys.stderr, flush=True)
            return
        with self.lock:
            self.status = console.status(self.line())
            self.status.start()
