"""Functions of tensors captured once as CUDA graphs and replayed, where shapes are fixed."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


class Replayable(Protocol):
    """The result of a capture: `torch.cuda.CUDAGraph`, or a stand-in in the tests."""

    def replay(self) -> None: ...


@dataclass
class CapturedGraph:
    """A captured function: its graph and the fixed memory that the graph reads and writes."""

    graph: Replayable
    arguments: tuple[Tensor, ...]
    output: Any  # whatever the function returned


class GraphCache:
    """Call functions by name; when enabled, capture each one once and replay it from then on.

    A captured function reads and writes fixed memory. Its arguments are copied in. Output tensors
    are copied out; any other output is always the same object, and a replay refreshes its tensors.

    All captures share one memory pool, so that one may use what another left there, and one
    stream, so that the work space of the libraries on it is theirs alone and they may run beside
    other work. A call inside another call becomes part of the outer graph.
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._is_nested = False
        self._stream: torch.cuda.Stream | None = None
        self.clear()

    def clear(self) -> None:
        """Free all graphs and everything that was cached for them."""
        self._captured: dict[str, CapturedGraph] = {}
        self._functions: list[Callable[..., Any]] = []  # a graph reads the memory that they hold
        self._cached: dict[str, Any] = {}
        self._called: set[str] = set()
        self._pool: Any = None

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Make an object once, by name; it lives as long as the graphs that read and write it."""
        if name not in self._cached:
            self._cached[name] = make()
        cached: T = self._cached[name]
        return cached

    def __call__(self, name: str, function: Callable[..., T], *arguments: Tensor) -> T:
        """Call a function, as a graph when enabled, and copy its output tensors."""
        if not self.enabled or self._is_nested:
            return function(*arguments)
        output: T = _copied(self._replay(name, function, *arguments))
        return output

    def to_host(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> np.ndarray:
        """Call a function in the same way and copy its numbers to the host.

        The first call runs without a graph: that initialises the libraries, and many functions
        are called only once.
        """
        if not self.enabled:
            return function(*arguments).cpu().numpy()
        if name not in self._called:
            self._called.add(name)
            return self._run_eagerly(function, arguments).cpu().numpy()
        return self._replay(name, function, *arguments).cpu().numpy()

    def _replay(self, name: str, function: Callable[..., T], *arguments: Tensor) -> T:
        """Replay the graph of a function on new arguments; capture it first if there is none."""
        if name not in self._captured:
            if name not in self._called:
                self._run_eagerly(function, arguments)
            self._captured[name] = self._capture(function, arguments)
            self._functions.append(function)

        captured = self._captured[name]
        for place, argument in zip(captured.arguments, arguments, strict=True):
            place.copy_(argument)
        captured.graph.replay()
        output: T = captured.output
        return output

    def _run_eagerly(self, function: Callable[..., T], arguments: tuple[Tensor, ...]) -> T:
        """Run a function on the stream of the captures."""
        stream = self._stream = self._stream or torch.cuda.Stream(priority=-1)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), self._nested(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # none is used
            warnings.filterwarnings("ignore", "Attempting to run cuBLAS")  # of autograd's thread
            output = function(*arguments)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _capture(
        self, function: Callable[..., Any], arguments: tuple[Tensor, ...]
    ) -> CapturedGraph:
        """Record one call of a function on copies of the arguments, where later ones are put."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        places = tuple(a.clone() for a in arguments)

        graph = torch.cuda.CUDAGraph()
        capturing = torch.cuda.graph(graph, pool=self._pool, stream=self._stream)
        with no_garbage_collection(), capturing, self._nested():
            output = function(*places)
        return CapturedGraph(graph, places, output)

    @contextmanager
    def _nested(self) -> Iterator[None]:
        """Make calls inside part of the present one."""
        self._is_nested = True
        try:
            yield
        finally:
            self._is_nested = False


def _copied(output: Any) -> Any:
    """Return tensors, alone or in a tuple, as copies, and anything else unchanged."""
    if isinstance(output, tuple):
        return tuple(tensor.clone() for tensor in output)
    return output.clone() if torch.is_tensor(output) else output


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Postpone garbage collection: freeing an old graph during a capture would end the capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
