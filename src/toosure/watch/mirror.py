"""A network's weights of one moment, to be looked at while training goes on with the network."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any

import torch
from torch import nn


class Mirror:
    """A copy of a network that is brought up to date when told to, in the order of the device.

    On a GPU it is looked at on a stream of its own, beside the training steps in the queue.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.source, self.model = model, deepcopy(model)
        self._there = [*self.model.parameters(), *self.model.buffers()]
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device, priority=-1)  # before what is in the queue
            self._taken = torch.cuda.Event()
        self.take()

    def take(self) -> None:
        """Take the weights and buffers as they will be when all that was queued is done."""
        here = [*self.source.parameters(), *self.source.buffers()]
        if [t.shape for t in here] != [t.shape for t in self._there]:
            raise ValueError(
                "the network's parameters or buffers are not those it had: make a new watch"
            )
        with torch.no_grad():
            torch._foreach_copy_(self._there, here)
        if self._stream is not None:
            self._taken.record()

    def wait(self) -> None:
        """Wait until they are taken."""
        if self._stream is not None:
            self._taken.synchronize()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at what was taken: nothing that trains is waited for, and it does not wait."""
        if self._stream is None:
            yield
            return
        self._stream.wait_event(self._taken)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            torch.cuda.current_stream().wait_stream(self._stream)  # before the next is taken


def mirror_of(model: nn.Module, loss: Any, objective: Any, device: torch.device) -> Mirror | None:
    """A mirror of a network that can be looked at later; None where only now will do.

    That is where the objective predicts, with a state of its own, where a loss may change as it
    trains (ours and torch's do not), and where the network cannot be copied.
    """
    known = type(loss).__module__.startswith(("torch.nn.", "toosure.losses."))
    if hasattr(objective, "predict") or not known:
        return None
    try:
        return Mirror(model, device)
    except (RuntimeError, TypeError):  # it holds what Python cannot copy
        return None


def looking(mirror: Mirror | None) -> Any:
    """Where to look: at a mirror, or at the network itself."""
    return nullcontext() if mirror is None else mirror.looking()
