"""The loss seen from the logits: its value, gradient and Hessian in output space."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MSE_SCALES = ("mean", "sum", "half")
LossLike = str | nn.Module | Callable[[Tensor, Tensor], Tensor] | Any


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy: H_z u = p * u - p (p . u)."""

    def total(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="sum")

    def hessian(self, logits: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        """Apply the output Hessian of every sample to u, whose last axes are (n, C)."""
        p = logits.softmax(-1)  # (n, C)
        pu = p * u
        return pu - p * pu.sum(-1, keepdim=True)


@dataclass(frozen=True)
class MSE:
    """Squared error to the one-hot target, in one of its three conventions.

    "mean" is (1/K) sum_k (z_k - e_k)^2, with H_z = (2/K) I (the paper's); "sum" drops the 1/K
    (H_z = 2 I); "half" is half of that (H_z = I; Cohen et al. 2021).

    >>> MSE("half").factor(10)
    1.0
    """

    scale: Literal["mean", "sum", "half"] = "mean"

    def __post_init__(self) -> None:
        if self.scale not in MSE_SCALES:
            raise ValueError(f"scale must be one of {MSE_SCALES}; got {self.scale!r}")

    def factor(self, classes: int) -> float:
        return {"mean": 2.0 / classes, "sum": 2.0, "half": 1.0}[self.scale]

    def total(self, logits: Tensor, labels: Tensor) -> Tensor:
        target = F.one_hot(labels, logits.shape[-1]).to(logits.dtype)
        return 0.5 * self.factor(logits.shape[-1]) * (logits - target).square().sum()

    def hessian(self, logits: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        return self.factor(logits.shape[-1]) * u


@dataclass(frozen=True)
class UserLoss:
    """Any loss `f(logits, labels)` that averages over samples (or sums, if it says so)."""

    function: Callable[[Tensor, Tensor], Tensor]

    def total(self, logits: Tensor, labels: Tensor) -> Tensor:
        value = self.function(logits, labels)
        reduction = getattr(self.function, "reduction", "mean")
        if reduction == "none":
            return value.sum()
        if value.ndim:
            raise ValueError(f"the loss must return a number; got shape {tuple(value.shape)}")
        return value if reduction == "sum" else value * len(logits)

    def hessian(self, logits: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        with torch.enable_grad():
            z = logits.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.total(z, labels), z, create_graph=True)
            if not gradient.requires_grad:  # a loss linear in the logits
                return torch.zeros_like(u)
            rows = [
                torch.autograd.grad(gradient, z, row, retain_graph=True)[0]
                for row in u.reshape(-1, *z.shape)
            ]
        return torch.stack(rows).reshape(u.shape)


def output_loss(loss: LossLike) -> CrossEntropy | MSE | UserLoss:
    """Turn "ce", "mse", a torch loss or a user's function into its output-space form."""
    if isinstance(loss, CrossEntropy | MSE | UserLoss):
        return loss
    if loss == "ce":
        return CrossEntropy()
    if loss == "mse":
        return MSE()
    if isinstance(loss, str):
        raise ValueError(f'loss must be "ce", "mse" or a function of logits; got {loss!r}')
    if type(loss) is nn.CrossEntropyLoss and _is_plain(loss):
        return CrossEntropy()
    if not callable(loss):
        raise ValueError(f"loss must be callable as loss(logits, labels); got {type(loss)}")
    return UserLoss(loss)


def _is_plain(loss: nn.CrossEntropyLoss) -> bool:
    if loss.ignore_index >= 0:
        raise ValueError(
            f"ignore_index={loss.ignore_index} leaves samples out: leave them out of the data, as "
            "curvature is a mean over all of them"
        )
    return loss.weight is None and loss.label_smoothing == 0 and loss.reduction == "mean"


class ClassWeighted:
    """Cross-entropy with class weights, whose mean divides by the weights of all samples."""

    reduction = "sum"

    def __init__(self, loss: nn.CrossEntropyLoss, scale: float) -> None:
        self.loss, self.scale = loss, scale

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        weight = self.loss.weight.to(logits)  # type: ignore[union-attr]
        smoothing = self.loss.label_smoothing
        total = F.cross_entropy(logits, labels, weight, reduction="sum", label_smoothing=smoothing)
        return self.scale * total
