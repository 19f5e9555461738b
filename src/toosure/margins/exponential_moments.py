"""Exponential moments of margins, mean exp(-m), held as logarithms so that nothing overflows."""

import math

import torch
from torch import Tensor

from toosure.margins.margins import ArrayLike
from toosure.metrics.inputs import check_finite


def log_moment(margins: ArrayLike, log_weights: ArrayLike | None = None) -> Tensor:
    r"""Return log Q, Q = mean_i w_i exp(-m_i), with w_i = 1 unless `log_weights` (N,) are given.

    Q_D takes true margins, Q_eps robust ones; `log_weights = -eps * L_m` makes it Q-, and
    `+eps * L_m` makes it Q+. It is finite at margins of -1e4, where exp(-m) is not. The sum is in
    float64 for inputs of any dtype: a half-precision sum over many samples overflows.
    Reference: Too Sharp, Too Sure, Sec. 4 and App. B.3 (2026), arXiv 2604.20614.

    >>> log_moment(torch.tensor([1.5, -0.9, 3.0, -0.2], dtype=torch.float64))
    tensor(-0.0116, dtype=torch.float64)
    >>> log_moment(torch.tensor([-1e4]))
    tensor(10000., dtype=torch.float64)
    """
    exponents = exponents_of(margins, log_weights)
    return exponents.logsumexp(0) - math.log(len(exponents))


def exponents_of(margins: ArrayLike, log_weights: ArrayLike | None = None) -> Tensor:
    """Return log w_i - m_i of checked inputs in float64, (N,)."""
    exponents = -check_finite(torch.as_tensor(margins), "margins").double()
    if exponents.ndim != 1 or len(exponents) == 0:
        raise ValueError(f"margins must have shape (N,), N > 0; got {tuple(exponents.shape)}")
    if log_weights is None:
        return exponents

    weights = check_finite(torch.as_tensor(log_weights, device=exponents.device), "log_weights")
    if weights.shape != exponents.shape:
        raise ValueError(
            f"log_weights must have shape {tuple(exponents.shape)} to match margins; "
            f"got {tuple(weights.shape)}"
        )
    return exponents + weights


class LogMoment:
    """Stream `log_moment` over chunks: the state is one number, and the order does not matter.

    >>> moment = LogMoment()
    >>> moment.update(torch.tensor([1.5, -0.9]))
    >>> moment.update(torch.tensor([3.0, -0.2]))
    >>> round(moment.compute(), 6)
    -0.011586
    """

    def __init__(self) -> None:
        self.count = 0
        self.log_sum: Tensor | None = None  # on the margins' device

    def update(self, margins: Tensor, log_weights: Tensor | None = None) -> None:
        """Add a chunk of margins, (N,), with the logarithms of their weights."""
        exponents = exponents_of(margins.detach(), log_weights)
        added = exponents.logsumexp(0)
        self.log_sum = added if self.log_sum is None else torch.logaddexp(self.log_sum, added)
        self.count += len(exponents)

    def compute(self) -> float:
        """Return log Q of all chunks."""
        if self.log_sum is None:
            raise ValueError("no margins were seen: call update first")
        return float(self.log_sum) - math.log(self.count)
