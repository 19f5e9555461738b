"""A network of one's own, named as own_model:noisy: BatchNorm and dropout, which keep states."""

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
