"""Networks of one's own, named as own_model:noisy: BatchNorm and dropout, which keep states."""

import os
import signal
from math import prod

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


def deadly(inputs: tuple[int, ...], classes: int) -> nn.Module:
    """Stand for a run that does not fit into memory: the system kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return nn.Identity()


def mistaken(inputs: tuple[int, ...], classes: int) -> nn.Module:
    """Stand for somebody's mistake."""
    raise ZeroDivisionError("division by zero")
