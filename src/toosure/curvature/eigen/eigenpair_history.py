"""What following an eigenpair remembers of it, and how its vector goes on from there."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.small_eigen import solved
from toosure.curvature.eigen.solver import TINY

MEMORY = 6  # leading vectors remembered for the extrapolation
RIDGE = 1e-5


@dataclass
class Memory:
    """What a follower carries from one measurement to the next."""

    leading: Tensor | None = None  # (m, P), oldest first
    overlap: list[list[float]] = field(default_factory=list)  # of these, (m, m)
    values: list[float] = field(default_factory=list)
    spaces: list[Tensor] = field(default_factory=list)  # (k, P) of t-2 and t-1
    spectra: list[list[float]] = field(default_factory=list)  # their Ritz values
    error: float = 0.0  # of the last residual, without its part outside the space
    beyond: float = 0.0  # that part
    steps: int = 0
    steady: int = 0
    since_full: int = 0
    calm: int = 0  # calm steps since the last residual
    since_probe: int = 0
    deep: int = 1  # full steps in rounds to be taken deep after a shallow one that was not enough
    deep_for: int = 2  # of these, those still to take

    def push(self, leading: Tensor, value: float, shares: list[float]) -> None:
        """Add a leading vector, whose overlaps with those remembered, and itself, are known."""
        row = leading[None]
        past = row[:0] if self.leading is None else self.leading
        self.leading = torch.cat([past, row])[-MEMORY:]
        shares = [float(share) for share in shares]
        rows = [[*known, s] for known, s in zip(self.overlap, shares, strict=False)] + [shares]
        self.overlap = [known[-MEMORY:] for known in rows[-MEMORY:]]
        self.values = [*self.values, value][-MEMORY:]

    def continued(self) -> np.ndarray:
        """Weights of the leading vectors: the one to follow on them."""
        return continued(np.array(self.overlap))

    def state_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, list) else v for k, v in vars(self).items()}

    @classmethod
    def of(cls, state: dict[str, Any], like: Tensor) -> "Memory":
        """What a state holds, with vectors like others in device and type."""
        if "overlap" not in state:  # of an earlier version: start anew
            state = {"steps": state["steps"]}
        memory = cls(**state)
        if memory.leading is not None:
            memory.leading = memory.leading.to(like.device, like.dtype)
        memory.spaces = [v.to(like.device, like.dtype) for v in memory.spaces]
        return memory


def continued(overlap: np.ndarray) -> np.ndarray:
    """Weights of unit vectors, oldest first, with these overlaps: the one to follow on them.

    By ridge regression on the lags.

    >>> turn = np.array([0.0, 0.1, 0.2, 0.3])
    >>> past = np.stack([np.cos(turn), np.sin(turn)], 1)
    >>> x, y = continued(past @ past.T) @ past
    >>> round(float(np.arctan2(y, x)), 3)
    0.4
    """
    lags, latest = overlap[:-1, :-1].copy(), overlap[:-1, -1]
    np.fill_diagonal(lags, lags.diagonal() + RIDGE)
    weights, found = np.zeros(len(overlap)), solved(lags, latest)
    if found is None:  # overlaps of what rounding left
        weights[-1] = 1.0
    else:
        weights[1:] = found  # each lag is one step on
    return weights / np.sqrt(max(weights @ overlap @ weights, TINY))
