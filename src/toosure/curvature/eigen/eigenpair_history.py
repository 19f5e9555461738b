"""What a warm eigenpair remembers of earlier steps, and the extrapolation of its vector."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.error_estimates import TINY
from toosure.curvature.eigen.small_eigen import solve_positive_definite
from toosure.curvature.eigen.solver import Solution

LENGTH = 6  # leading vectors remembered for the extrapolation
RIDGE = 1e-5


@dataclass
class EigenpairHistory:
    """The state between two measurements. Field names are keys of checkpoints."""

    leading: Tensor | None = None  # (m, P), the last leading vectors, oldest first
    overlap: list[list[float]] = field(default_factory=list)  # of these, (m, m)
    values: list[float] = field(default_factory=list)  # their eigenvalues
    spaces: list[Tensor] = field(default_factory=list)  # (k, P), the Ritz vectors of t-2 and t-1
    spectra: list[list[float]] = field(default_factory=list)  # their Ritz values
    error: float = 0.0  # at the last residual, without the part outside the space
    beyond: float = 0.0  # the part outside the space
    steps: int = 0
    steady: int = 0  # well extrapolated steps in a row
    since_full: int = 0  # cheap steps since the last full one
    calm: int = 0  # calm steps since the last residual
    since_probe: int = 0
    deep: int = 1  # with graphs: full steps to take deep after a shallow one that was not enough
    deep_for: int = 2  # number of these that remain

    def store(self, solution: Solution, keep: int, along: np.ndarray | None = None) -> None:
        """Store the vectors of a solution, the first one turned to point along the expected one.

        `keep` vectors are kept. `along` are the weights of the expected vector; without them it is
        the last one.
        """
        space = solution.improved
        spectrum = solution.values.tolist()
        known = len(space)
        if known < keep and self.spaces:  # a lean step saw one vector: keep the others
            space = torch.cat([space, self.spaces[-1][known:]])
            spectrum += self.spectra[-1][known:]
        self.spaces = [*self.spaces, space][-2:]
        self.spectra = [*self.spectra, spectrum][-2:]

        self.error = float(solution.errors[0]) - solution.error_outside
        self.beyond = solution.error_outside
        self.calm = 0

        *past, square = solution.past_overlaps[-1]
        ahead = sum(past[-1:]) if along is None else np.dot(past, along)
        side = -1.0 if ahead < 0 else 1.0
        overlaps = [*(side * overlap for overlap in past), square]
        self.push(side * space[0], spectrum[0], overlaps)

    def push(self, leading: Tensor, value: float, overlaps: list[float]) -> None:
        """Add a leading vector, with its overlaps with the remembered ones and with itself."""
        row = leading[None]
        past = row[:0] if self.leading is None else self.leading
        self.leading = torch.cat([past, row])[-LENGTH:]

        overlaps = [float(overlap) for overlap in overlaps]
        rows = [[*known, new] for known, new in zip(self.overlap, overlaps, strict=False)]
        rows.append(overlaps)
        self.overlap = [known[-LENGTH:] for known in rows[-LENGTH:]]
        self.values = [*self.values, value][-LENGTH:]

    def extrapolation_weights(self) -> np.ndarray:
        """Return the weights of the remembered vectors in the next expected one."""
        return extrapolation_weights(np.array(self.overlap))

    def state_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, list) else v for k, v in vars(self).items()}

    @classmethod
    def from_state(cls, state: dict[str, Any], like: Tensor) -> "EigenpairHistory":
        """Restore a state, with vectors like others in device and type."""
        history = cls(**state)
        if history.leading is not None:
            history.leading = history.leading.to(like.device, like.dtype)
        history.spaces = [v.to(like.device, like.dtype) for v in history.spaces]
        return history


def extrapolation_weights(overlap: np.ndarray) -> np.ndarray:
    """Extrapolate unit vectors, oldest first, given their overlaps: weights of the next one.

    By ridge regression of the last one on those before it, applied one step later.

    >>> angle = np.array([0.0, 0.1, 0.2, 0.3])
    >>> past = np.stack([np.cos(angle), np.sin(angle)], 1)
    >>> x, y = extrapolation_weights(past @ past.T) @ past
    >>> round(float(np.arctan2(y, x)), 3)
    0.4
    """
    lags = overlap[:-1, :-1].copy()
    latest = overlap[:-1, -1]
    np.fill_diagonal(lags, lags.diagonal() + RIDGE)
    solution = solve_positive_definite(lags, latest)

    weights = np.zeros(len(overlap))
    if solution is None:  # overlaps of what rounding left: go on with the last vector
        weights[-1] = 1.0
    else:
        weights[1:] = solution  # each lag moves on by one step
    length = np.sqrt(max(weights @ overlap @ weights, TINY))
    scaled: np.ndarray = weights / length
    return scaled
