"""The loss as a function of the logits: its value and its Hessian H_z in output space."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MSE_SCALES = ("mean", "sum", "half")


class OutputLoss(Protocol):
    """A loss of logits (n, C) and labels (n,), summed over samples, with its output Hessian."""

    def total(self, logits: Tensor, labels: Tensor) -> Tensor: ...
    def hessian(self, logits: Tensor, labels: Tensor, u: Tensor) -> Tensor: ...


LossLike = str | OutputLoss | nn.Module | Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy: H_z u = p * u - p (p . u)."""

    def total(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="sum")

    def hessian(self, logits: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        """Apply the output Hessian of every sample to u, (..., n, C)."""
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
        """Return the number c in H_z = c I."""
        return {"mean": 2.0 / classes, "sum": 2.0, "half": 1.0}[self.scale]

    def total(self, logits: Tensor, labels: Tensor) -> Tensor:
        target = F.one_hot(labels, logits.shape[-1]).to(logits.dtype)
        return 0.5 * self.factor(logits.shape[-1]) * (logits - target).square().sum()

    def hessian(self, logits: Tensor, labels: Tensor, u: Tensor) -> Tensor:
        return self.factor(logits.shape[-1]) * u


@dataclass(frozen=True)
class UserLoss:
    """Any loss `f(logits, labels)` that averages over samples, or sums if its `reduction` says so.

    Its output Hessian comes from differentiating it twice.
    """

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
            products = [
                torch.autograd.grad(gradient, z, row, retain_graph=True)[0]
                for row in u.reshape(-1, *z.shape)
            ]
        return torch.stack(products).reshape(u.shape)


def output_loss(loss: LossLike) -> OutputLoss:
    """Turn "ce", "mse", a torch loss or a user's function into its output-space form."""
    if isinstance(loss, CrossEntropy | MSE | UserLoss):
        return loss
    if loss == "ce":
        return CrossEntropy()
    if loss == "mse":
        return MSE()
    if isinstance(loss, str):
        raise ValueError(f'loss must be "ce", "mse" or a function of logits; got {loss!r}')

    # Torch's own cross-entropy has a closed form here, unless its options change it.
    if type(loss) is nn.CrossEntropyLoss and _is_plain(loss):
        return CrossEntropy()
    if not callable(loss):
        raise ValueError(f"loss must be callable as loss(logits, labels); got {type(loss)}")
    return UserLoss(loss)


def _is_plain(loss: nn.CrossEntropyLoss) -> bool:
    """Whether the Hessian of a cross-entropy is the usual one; raise if it leaves samples out."""
    if loss.ignore_index >= 0:
        raise ValueError(
            f"ignore_index={loss.ignore_index} leaves samples out, and curvature is a mean over "
            "all of them: leave them out of the data, and give a loss without ignore_index"
        )
    return loss.weight is None and loss.label_smoothing == 0 and loss.reduction == "mean"


class ClassWeighted:
    """Cross-entropy with class weights, scaled so that its sum over all samples is N means.

    The mean of torch divides by the total weight of a batch. Chunks of the data would divide by
    different numbers; this divides by the total weight of all samples, which is in `scale`.
    """

    reduction = "sum"

    def __init__(self, weight: Tensor, smoothing: float, scale: float) -> None:
        self.weight = weight
        self.smoothing = smoothing
        self.scale = scale

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        total = F.cross_entropy(
            logits,
            labels,
            self.weight.to(logits),
            reduction="sum",
            label_smoothing=self.smoothing,
        )
        return self.scale * total


def weighted_cross_entropy(loss: OutputLoss) -> nn.CrossEntropyLoss | None:
    """Return torch's cross-entropy with class weights and a mean, if the loss wraps one."""
    wrapped = getattr(loss, "function", None)
    if type(wrapped) is not nn.CrossEntropyLoss:
        return None
    return wrapped if wrapped.weight is not None and wrapped.reduction == "mean" else None


def over_all_samples(
    loss: OutputLoss, labels: Tensor, count: int, reduce_sum: Callable[[Tensor], Tensor]
) -> OutputLoss:
    """Return the loss as a sum over samples that does not depend on the chunks they come in.

    `labels` belong to this process, `count` is the number of samples of all processes.
    """
    weighted = weighted_cross_entropy(loss)
    if weighted is None:
        return loss

    assert weighted.weight is not None
    class_weights = weighted.weight.to(labels.device).double()
    total_weight = reduce_sum(class_weights[labels].sum())
    scale = count / float(total_weight)
    return output_loss(ClassWeighted(weighted.weight, weighted.label_smoothing, scale))
