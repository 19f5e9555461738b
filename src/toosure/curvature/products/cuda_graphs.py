"""Passes captured once as CUDA graphs and replayed, where shapes are fixed."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Replay:
    """Call functions by name; when enabled, capture each once and replay it from then on.

    A captured function reads and writes fixed memory: its argument is copied in, and its output
    (tensors are copied out; anything else is the same object, refreshed in place) comes back.
    All captures share one memory pool, so one may use what another left, and one stream, so that
    the work space of its libraries is theirs alone and they may run beside other work. A call
    inside another becomes part of it.
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled, self._inside = enabled, False
        self._stream: torch.cuda.Stream | None = None
        self.forget()

    def forget(self) -> None:
        self._captured: dict[str, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]] = {}
        self._functions: list[Callable[..., Any]] = []  # a graph reads the memory that they hold
        self._kept: dict[str, Any] = {}
        self._asked: set[str] = set()
        self._pool: Any = None

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made once, by name, and lives as long as the graphs that read and write it."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def __call__(self, name: str, function: Callable[..., Any], *arguments: Tensor) -> Any:
        if not self.enabled or self._inside:
            return function(*arguments)
        output = self._replayed(name, function, *arguments)
        if isinstance(output, tuple):
            return tuple(tensor.clone() for tensor in output)
        return output.clone() if torch.is_tensor(output) else output

    def told(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        """Call a function in the same way, and look at its numbers.

        The first time it runs as it is: that readies the libraries, and much is asked for once.
        """
        if not self.enabled:
            return function(*arguments).cpu().numpy()
        if name not in self._asked:
            self._asked.add(name)
            return self._eagerly(function, arguments).cpu().numpy()
        return self._replayed(name, function, *arguments).cpu().numpy()

    def _replayed(self, name: str, function: Callable[..., Any], *arguments: Tensor) -> Any:
        if name not in self._captured:
            if name not in self._asked:
                self._eagerly(function, arguments)
            self._captured[name] = self._capture(function, arguments)
            self._functions.append(function)
        graph, places, output = self._captured[name]
        for place, argument in zip(places, arguments, strict=True):
            place.copy_(argument)
        graph.replay()
        return output

    def _eagerly(self, function: Callable[..., Any], arguments: tuple[Tensor, ...]) -> Any:
        """Run a function on the stream of the captures."""
        stream = self._stream = self._stream or torch.cuda.Stream(priority=-1)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), self._alone(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # none is used
            warnings.filterwarnings("ignore", "Attempting to run cuBLAS")  # of autograd's thread
            output = function(*arguments)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _capture(
        self, function: Callable[..., Any], arguments: tuple[Tensor, ...]
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        places = tuple(a.clone() for a in arguments)
        graph = torch.cuda.CUDAGraph()
        capturing = torch.cuda.graph(graph, pool=self._pool, stream=self._stream)
        with undisturbed(), capturing, self._alone():
            output = function(*places)
        return graph, places, output

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let calls inside be part of this one."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off collecting garbage: an old graph that is freed in it ends a capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
