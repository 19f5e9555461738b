"""Networks of one's own, named as own_model:noisy: BatchNorm and dropout, which keep states."""

import os
import signal
import time
from math import prod
from pathlib import Path

from torch import nn


def noisy(inputs: tuple[int, ...], classes: int, width: int = 16) -> nn.Module:
    """Build a small network whose training draws random numbers and keeps running statistics."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(inputs), width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(width, classes),
    )


class Held(nn.Module):
    """A small network whose training stands still, so that a test can disturb it there.

    After `after` forwards in training, each takes `seconds`, or until the file `until` exists.
    """

    def __init__(
        self, inputs: tuple[int, ...], classes: int, until: str, after: int, seconds: float
    ):
        super().__init__()
        self.until, self.left, self.seconds = Path(until), after, seconds
        self.layers = noisy(inputs, classes, 8)

    def forward(self, x):
        self.left -= self.training
        end = time.monotonic() + self.seconds
        while self.left < 0 and time.monotonic() < end and not self.until.exists():
            time.sleep(0.01)
        return self.layers(x)


def held(
    inputs: tuple[int, ...], classes: int, until: str, after: int, seconds: float = 3600.0
) -> nn.Module:
    """Build a network that stands still after some steps: `own_model:held,until=/go,after=9`."""
    return Held(inputs, classes, until, after, seconds)


def deadly(inputs: tuple[int, ...], classes: int) -> nn.Module:
    """Stand for a run that does not fit into memory: the system kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return nn.Identity()


def mistaken(inputs: tuple[int, ...], classes: int) -> nn.Module:
    """Stand for somebody's mistake."""
    raise ZeroDivisionError("division by zero")


def normed(inputs: tuple[int, ...], classes: int, width: int = 8) -> nn.Module:
    """Build a network with BatchNorm, and without draws."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(inputs), width),
        nn.BatchNorm1d(width),
        nn.Tanh(),
        nn.Linear(width, classes),
    )
