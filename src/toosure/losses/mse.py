"""Squared error of the logits to the one-hot label, in its three conventions."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Scale = Literal["mean", "sum", "half"]


class MSELoss(nn.Module):
    """Take the squared distance of the logits from the one-hot label.

    Formula: scale "mean" is (1/K) sum_k (z_k - e_k)^2 (the paper's), "sum" drops the 1/K, "half"
    is half the sum. Reference: Too Sharp, Too Sure, App. D (2026), arXiv 2604.20614.

    >>> import torch
    >>> MSELoss("sum")(torch.tensor([[0.5, 0.0]]), torch.tensor([0]))
    tensor(0.2500)
    """

    def __init__(self, scale: Scale = "mean", *, reduction: str = "mean") -> None:
        super().__init__()
        if scale not in ("mean", "sum", "half"):
            raise ValueError(f'scale must be "mean", "sum" or "half"; got {scale!r}')
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction must be "mean", "sum" or "none"; got {reduction!r}')
        self.scale, self.reduction = scale, reduction

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        target = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
        factor = {"mean": 1 / logits.shape[1], "sum": 1.0, "half": 0.5}[self.scale]
        each = factor * (logits - target).square().sum(1)  # (N,)
        return each if self.reduction == "none" else getattr(each, self.reduction)()
