"""How much of a meta-gradient is signal: its mean against its spread, between two rows."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ENOUGH_STEPS = 50  # with fewer, a small mean is not significant
STANDARD_ERRORS = 2.0  # a mean closer to 0 is not significant


@dataclass(frozen=True)
class SignalToNoise:
    """The mean of a number over some steps, in units of its spread.

    `per_step` is |mean| / standard deviation. `overall` is that times the square root of the
    number of independent steps: below 2, the mean cannot be told from 0.
    """

    per_step: float = 0.0
    overall: float = 0.0
    steps: int = 0

    @property
    def is_noise(self) -> bool:
        """Whether enough steps were taken, and their mean does not differ from 0 significantly."""
        return self.steps >= ENOUGH_STEPS and self.overall < STANDARD_ERRORS


class MetaSignal(nn.Module):
    """Add up one number per meta-step, and its square, until they are asked for.

    `overlap` is the number of steps after which two numbers share no meta example.

    >>> signal = MetaSignal()
    >>> for number in (1.0, 3.0) * 200:
    ...     signal.add(torch.tensor(number))
    >>> read = signal.take()
    >>> round(read.per_step, 1), round(read.overall)
    (2.0, 40)
    """

    sums: Tensor  # steps, sum and sum of squares since the last `take`

    def __init__(self, overlap: float = 1.0) -> None:
        super().__init__()
        self.overlap = overlap
        self.last = SignalToNoise()
        self.register_buffer("sums", torch.zeros(3, dtype=torch.float64), persistent=False)

    @torch.no_grad()
    def add(self, number: Tensor) -> None:
        """Take the number of one meta-step, in place, so that a CUDA graph can record it."""
        number = number.double()
        step = torch.stack([torch.ones_like(number), number, number**2])
        self.sums.add_(step.to(self.sums))

    def take(self) -> SignalToNoise:
        """Return the ratio since the last call and start anew; the last one without two steps."""
        steps, total, squares = self.sums.tolist()
        if steps < 2:
            return self.last
        self.sums.zero_()

        mean = total / steps
        variance = squares / steps - mean**2
        per_step = abs(mean) / math.sqrt(variance) if variance > 0 else 0.0
        overall = per_step * math.sqrt(steps / self.overlap)
        self.last = SignalToNoise(per_step, overall, int(steps))
        return self.last
