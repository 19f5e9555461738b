"""Standard output that may lose its reader: what is printed is dropped, and the command goes on."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, TextIO, cast


class PipeSafeOutput:
    """Pass text on to a stream until it can no longer be written; drop it from then on.

    So ends `toosure train ... | head -2`, or a terminal that was closed: a run has its rows in its
    folder, and needs nobody who reads along.
    """

    def __init__(self, stream: TextIO, notice: str) -> None:
        self.stream = stream
        self.notice = notice  # said once, on standard error

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
        """Lead the stream nowhere, and with it what it holds back; say so once."""
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
    """Let a long command go on where nobody reads its output any more."""
    sys.stdout = cast(TextIO, PipeSafeOutput(sys.stdout, notice))
    sys.stderr = cast(TextIO, PipeSafeOutput(sys.stderr, ""))


def replace_unencodable() -> None:
    """Print a question mark for a letter that the encoding of the output lacks, as ± in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def reopen_closed_streams() -> None:
    """Open what the command was started without, as by `>&-`: it leads nowhere.

    Otherwise the next file to be opened, such as a run's rows, would be taken for it.
    """
    while (place := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(place, True)
    os.close(place)

    # Python has None in place of a stream that was closed when it started.
    if getattr(sys, "stdout", None) is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (kept open)
    if getattr(sys, "stderr", None) is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
