"""How much of a meta-gradient is signal: its running mean against its running spread."""

import math

import torch
from torch import Tensor, nn

STEPS = 50  # over which the running means look back
FEW_STEPS = 1 - math.exp(-1)  # weight of the means after STEPS steps; before, nothing is judged


class MetaSignal(nn.Module):
    """Follow one number per meta-step: running means of it and of its square.

    |mean| / spread is the signal-to-noise ratio of a single step. A number without signal shows
    about .1, the error of a mean over so many steps. Nothing waits for the device until `ratio`.

    >>> signal = MetaSignal()
    >>> for number in (1.0, 3.0) * 200:
    ...     signal.add(torch.tensor(number))
    >>> round(signal.ratio, 1)
    2.0
    """

    moments: Tensor  # mean, mean square, and the weight that both have collected

    def __init__(self) -> None:
        super().__init__()
        zeros = torch.zeros(3, dtype=torch.float64)
        self.register_buffer("moments", zeros, persistent=False)

    @torch.no_grad()
    def add(self, number: Tensor) -> None:
        """Take the number of one meta-step, in place, so that a CUDA graph can record it."""
        number = number.double()
        latest = torch.stack([number, number**2, torch.ones_like(number)])
        self.moments.lerp_(latest.to(self.moments), 1 / STEPS)

    @property
    def ratio(self) -> float:
        """|mean| / spread of a step; 0 where there is no spread yet."""
        mean, square, weight = self.moments.tolist()
        if not weight:
            return 0.0

        mean, square = mean / weight, square / weight
        variance = square - mean**2
        return abs(mean) / math.sqrt(variance) if variance > 0 else 0.0

    @property
    def judged(self) -> bool:
        """Whether enough steps were taken to judge the ratio."""
        return float(self.moments[2]) > FEW_STEPS
