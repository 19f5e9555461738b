"""Choose the width of a Gaussian kernel that estimates accuracy as a function of confidence."""

import math
from typing import Literal

from torch import Tensor

from toosure.metrics.inputs import check_positive

Bandwidth = float | Literal["auto"]
SMALLEST = 1e-3  # of `batch_bandwidth`, for rows that all have the same confidence


def check_kernel_bandwidth(bandwidth: Bandwidth) -> None:
    """Raise unless a bandwidth is positive or the word "auto"."""
    if isinstance(bandwidth, str) and bandwidth != "auto":
        raise ValueError(f'bandwidth must be a positive number or "auto"; got {bandwidth!r}')
    if not isinstance(bandwidth, str):
        check_positive("bandwidth", bandwidth)


def batch_bandwidth(confidence: Tensor) -> Tensor:
    """Return the bandwidth that balances bias and variance if the rows are nearly calibrated.

    The kernel estimate of accuracy at c has bias h^2 (m''/2 + m' f'/f) and variance
    m (1 - m) / (2 sqrt(pi) n h f), with m(c) the accuracy and f the density of confidence. For
    m(c) = c, the mean squared error over the rows is h^4 I + S / (2 sqrt(pi) n h), where I is the
    Fisher information of f and S the integral of c (1 - c) over the range of the confidences. It
    is least at h^5 = S / (8 sqrt(pi) n I). I is taken as 1 / variance, its value for a Gaussian
    density and its least value for any.
    It reads no label, has no gradient, and makes no device wait.

    >>> import torch
    >>> round(float(batch_bandwidth(torch.linspace(0.1, 1, 512))), 4)
    0.0685
    """
    c = confidence.detach().double()
    low, high = c.aminmax()

    spread = (high**2 - low**2) / 2 - (high**3 - low**3) / 3
    width = (spread * c.var(correction=0) / (8 * math.sqrt(math.pi) * len(c))) ** 0.2
    return width.clamp(min=SMALLEST)
