"""Calibration by pairwise constraints: each pair of classes is a binary problem."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, once_differentiable

from toosure.losses.loss import Penalty, Reduction

MAX_BLOCK = 2**20  # elements of one block of (rows, K, K) differences: 4 MiB in float32
MAX_BLOCK_ON_GPU = 2**26  # 256 MiB in float32


class CPCLoss(Penalty):
    """Separate the label from each other class, and no other class from any other.

    Formula: L + discrimination * BDC + exclusion * BEC, with BDC = mean_{j != y} -log sigmoid(z_y
    - z_j) and BEC = 1/((K-1)(K-2)) sum_{u, v} -1/2 log sigmoid(z_u - z_v), u != v both not y.
    `diagonal` keeps the pairs u = v of the public code, a constant (log 2)/2/(K-2). Time grows
    with N K^2, memory does not. With two classes there are no pairs to exclude.
    Reference: Cheng and Vasconcelos (2022), Calibrating Deep Neural Networks by Pairwise
    Constraints, CVPR.

    >>> CPCLoss(exclusion=0.0).penalty(torch.zeros(1, 3), torch.tensor([0]))
    tensor([0.0693])
    """

    def __init__(
        self,
        discrimination: float = 0.1,
        exclusion: float = 1.0,
        diagonal: bool = False,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(1.0, base, reduction)
        if not (discrimination >= 0 and exclusion >= 0):
            raise ValueError(f"weights must not be negative; got {discrimination} and {exclusion}")
        self.discrimination = discrimination
        self.exclusion = exclusion
        self.diagonal = diagonal

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return both terms, each with its weight."""
        total = self.discrimination * discrimination(logits, labels)
        if self.exclusion:
            total = total + self.exclusion * exclusion(logits, labels, self.diagonal)
        return total


def discrimination(logits: Tensor, labels: Tensor) -> Tensor:
    """Return BDC of each row, (N,): how badly the label is separated from each other class."""
    own = logits.gather(1, labels[:, None])
    return F.softplus(without(logits, labels) - own).mean(1)


def exclusion(logits: Tensor, labels: Tensor, diagonal: bool = False) -> Tensor:
    """Return BEC of each row, (N,): how much the other classes differ."""
    others = without(logits, labels)
    pairs = others.shape[1] * (others.shape[1] - 1)
    if pairs == 0:
        return torch.zeros_like(others[:, 0])

    constant = 0.5 * math.log(2) * others.shape[1] / pairs
    total: Tensor = _PairLoss.apply(others)
    return total / pairs + (constant if diagonal else 0.0)


def without(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the logits of all classes but the label, (N, K - 1)."""
    index = torch.arange(logits.shape[1] - 1, device=logits.device)
    return logits.gather(1, index + (index >= labels[:, None]).long())


class _PairLoss(torch.autograd.Function):
    """sum_{u != v} 1/2 softplus(z_v - z_u) of each row, (N,); differentiable twice."""

    @staticmethod
    def forward(ctx: BackwardCFunction, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)

        def rows(part: Tensor) -> Tensor:
            # softplus(d) + softplus(-d) = |d| + 2 log(1 + exp(-|d|)), and 2 log 2 at d = 0
            distance = (part[:, :, None] - part[:, None, :]).abs_()
            total = distance.sum((1, 2))
            total += 2 * distance.neg_().exp_().log1p_().sum((1, 2))
            return 0.25 * total

        same = 0.5 * z.shape[1] * math.log(2)
        return by_blocks(rows, z) - same

    @staticmethod
    def backward(ctx: BackwardCFunction, gradient: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        slope: Tensor = _PairSlope.apply(z)
        return gradient[:, None] * slope


class _PairSlope(torch.autograd.Function):
    """The gradient of _PairLoss: 1/2 sum_v tanh((z_u - z_v) / 2), (N, K)."""

    @staticmethod
    def forward(ctx: BackwardCFunction, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)

        def rows(part: Tensor) -> Tensor:
            difference = part[:, :, None] - part[:, None, :]
            return 0.5 * difference.mul_(0.5).tanh_().sum(2)

        return by_blocks(rows, z)

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, gradient: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors

        def rows(part: Tensor, v: Tensor) -> Tensor:
            slope = (part[:, :, None] - part[:, None, :]).mul_(0.5).tanh_().square_().neg_().add_(1)
            return 0.25 * (v * slope.sum(2) - (slope @ v[:, :, None]).squeeze(2))

        return by_blocks(rows, z, gradient)


def by_blocks(rows: Callable[..., Tensor], z: Tensor, *more: Tensor) -> Tensor:
    """Apply `rows` to a few rows at a time, so that their (rows, K, K) fit in one block."""
    elements = MAX_BLOCK if z.device.type == "cpu" else MAX_BLOCK_ON_GPU
    count = max(1, elements // z.shape[1] ** 2)
    pieces = zip(*(t.split(count) for t in (z, *more)), strict=True)
    return torch.cat([rows(*piece) for piece in pieces])
