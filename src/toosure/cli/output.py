"""Keep a command running when nobody reads its output any more, and print any text."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, TextIO, cast


class PipeSafeOutput:
    """Write to a stream until that fails; drop all text from then on.

    `toosure train ... | head -2`, or a closed terminal, must not stop a run: its rows are in its
    folder.
    """

    def __init__(self, stream: TextIO, notice: str) -> None:
        self.stream = stream
        self.notice = notice  # printed once, on standard error

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError as error:
            self.drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.drop(error)

    def drop(self, error: OSError) -> None:
        """Redirect the stream, and its buffer, to os.devnull; print the notice once."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)
        if self.notice:
            sentence = f"toosure: no output any more ({error.strerror}): {self.notice}\n"
            self.notice = ""
            with suppress(OSError):
                os.write(2, sentence.encode())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def ignore_broken_pipe(notice: str) -> None:
    """Let a long command go on when nobody reads its output any more."""
    sys.stdout = cast(TextIO, PipeSafeOutput(sys.stdout, notice))
    sys.stderr = cast(TextIO, PipeSafeOutput(sys.stderr, ""))


def replace_unencodable() -> None:
    """Print a question mark for letters that the output cannot encode, as ± in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def reopen_closed_streams() -> None:
    """Open standard streams that were closed at the start, as by `>&-`, on os.devnull.

    Otherwise the next file to be opened, such as a run's rows, would get their number.
    """
    while (place := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(place, True)
    os.close(place)

    # Python sets a stream to None if it was closed at the start.
    if getattr(sys, "stdout", None) is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (kept open)
    if getattr(sys, "stderr", None) is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
