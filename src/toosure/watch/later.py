"""Numbers worked out on the side, while a device with steps in its queue goes on."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch

from toosure.runs.read import Row
from toosure.watch.helper import helped, start

Found = TypeVar("Found")
ASIDE = 2  # calls at a time: one a split


@dataclass
class Unwritten:
    """A row that was looked at, while its metrics are worked out."""

    row: Row
    numbers: list[Callable[[], Row]]
    keep: Callable[[], None]  # of its snapshot
    due: bool  # whether that is to be kept in any case, and has begun

    def forget(self) -> None:
        """Let what has begun come to its end, whatever that is."""
        for call in (*self.numbers, *[self.keep] * self.due):
            with suppress(Exception):
                call()


class Later:
    """Calls made by two threads if they are to be `aside`, else when their result is asked for.

    A thread keeps to one core: a small array is not shared out among many. With `helpers` it
    mostly waits for a process that does the work.
    """

    def __init__(self, aside: bool, helpers: bool = False) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._helpers = helpers
        if aside:
            self._threads = ThreadPoolExecutor(ASIDE, "watch", torch.set_num_threads, (1,))
        if aside and helpers:
            start(ASIDE)

    def begin(self, call: Callable[[], Found], here: bool = False) -> Callable[[], Found]:
        """Begin a call; what comes back gives its result, or raises what it raised.

        `here` keeps it from the helpers.
        """
        if self._threads is None:
            return call
        if self._helpers and not here:
            return self._threads.submit(helped, call).result
        return self._threads.submit(call).result

    def close(self) -> None:
        """Let the threads go, once they are done."""
        if self._threads is not None:
            self._threads.shutdown()
