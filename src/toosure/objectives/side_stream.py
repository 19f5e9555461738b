"""Let two independent passes overlap on a GPU: one on the current stream, one beside it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream per device on which passes run beside the current one."""
    return torch.cuda.Stream(device)


@contextmanager
def beside(device: torch.device) -> Iterator[Callable[[], None]]:
    """Run what is inside beside what follows; call the function given before using its results.

    The side stream first waits for the current one, so that memory it used before is free again.
    A CUDA graph records both. On a CPU nothing changes.

    >>> with beside(torch.device("cpu")) as join:
    ...     number = torch.ones(2).sum()
    >>> join()
    """
    if device.type != "cuda":
        yield lambda: None
        return

    current = torch.cuda.current_stream(device)
    side = side_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield lambda: current.wait_stream(side)
