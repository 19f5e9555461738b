"""Squared error of the logits to the one-hot label, in its three conventions."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from toosure.losses.loss import Loss, Reduction

Scale = Literal["mean", "sum", "half"]


class MSELoss(Loss):
    """Take the squared distance of the logits from the one-hot label.

    Formula: scale "mean" is (1/K) sum_k (z_k - e_k)^2 (the paper's), "sum" drops the 1/K, "half"
    is half the sum. Reference: Too Sharp, Too Sure, App. D (2026), arXiv 2604.20614.

    >>> import torch
    >>> MSELoss("sum")(torch.tensor([[0.5, 0.0]]), torch.tensor([0]))
    tensor(0.2500)
    """

    one_column = (
        "MSELoss fits every logit to its one-hot target, which one logit per example has not: take "
        "torch's MSELoss of logit and label, or give two columns"
    )

    def __init__(self, scale: Scale = "mean", *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if scale not in ("mean", "sum", "half"):
            raise ValueError(f'scale must be "mean", "sum" or "half"; got {scale!r}')
        self.scale = scale

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        target = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
        factor = {"mean": 1 / logits.shape[1], "sum": 1.0, "half": 0.5}[self.scale]
        return factor * (logits - target).square().sum(1)
