"""Work on the side: metrics in a thread while a device trains, two splits that take turns."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import torch

from toosure.curvature.replay import TURNS

Result = TypeVar("Result")


class Side:
    """Two threads, made when they are first needed."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(2, thread_name_prefix="watch")

    def begin(self, call: Callable[..., Result], *arguments: object) -> "Future[Result]":
        """Start a call that needs no device."""
        return self._pool.submit(call, *arguments)

    def in_turns(self, calls: Mapping[str, Callable[[], Result]]) -> dict[str, Result]:
        """Make calls, each going on while another waits for the device."""

        def turn(call: Callable[[], Result]) -> Result:
            with torch.cuda.device(self.device), TURNS.taken():
                return call()

        started = {name: self._pool.submit(turn, call) for name, call in calls.items()}
        return {name: future.result() for name, future in started.items()}

    def close(self) -> None:
        if "_pool" in vars(self):
            self._pool.shutdown()
