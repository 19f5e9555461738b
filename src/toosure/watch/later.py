"""Numbers worked out on the side, while a device with steps in its queue goes on."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

Found = TypeVar("Found")


class Later:
    """Calls made by two threads if they are to be `aside`, else when their result is asked for.

    A thread keeps to one core: a small array is not shared out among many.
    """

    def __init__(self, aside: bool) -> None:
        self._threads: ThreadPoolExecutor | None = None
        if aside:
            self._threads = ThreadPoolExecutor(2, "watch", torch.set_num_threads, (1,))

    def begin(self, call: Callable[..., Found], *arguments: object) -> Callable[[], Found]:
        """Begin a call; what comes back gives its result, or raises what it raised."""
        if self._threads is None:
            return partial(call, *arguments)
        return self._threads.submit(call, *arguments).result

    def close(self) -> None:
        """Let the threads go, once they are done."""
        if self._threads is not None:
            self._threads.shutdown()
