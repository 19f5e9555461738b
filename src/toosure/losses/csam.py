"""Eq. 4 of CSAM: any per-example loss, weighted down where the network is already sure."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOG_2 = math.log(2)


def csam_weight(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Return 1 where p_y <= 1/2 and (1 + p_y)^(-gamma) above, for classes along dimension 1.

    The weight jumps at 1/2, from 1 to 1.5^(-gamma), as published.
    Reference: Tan et al., ICLR 2026, Eq. 4.

    >>> csam_weight(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]), gamma=1.0)
    tensor([0.5317, 1.0000])
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    index = labels.clamp(min=0).unsqueeze(1)  # an ignored label is negative; its loss is zero
    p = F.log_softmax(wide, 1).gather(1, index).squeeze(1).exp()
    return (1 + F.threshold(p, 0.5, 0.0)) ** -gamma  # p counts as 0 up to 1/2; (N,)


class CSAMLoss(nn.Module):
    """Weight `loss` per example by `csam_weight`: the loss of CSAM's second pass.

    Formula: l(z, y) if p_y <= 1/2, else (1 + p_y)^(-gamma) * l(z, y), reduced as `loss` reduces.
    Published for cross-entropy, 0 <= gamma <= 2; on top of focal loss or ACLS the same weight
    multiplies that loss. `detach_weight` stops the gradient through the weight. `gamma=0` is
    `loss` itself. `loss` must offer `reduction`, as torch's losses do.
    Reference: Tan et al., ICLR 2026, Eq. 4.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(CSAMLoss(gamma=1.0)(logits, torch.tensor([0, 2, 2, 1])).item(), 6)
    0.651832
    """

    def __init__(
        self, loss: nn.Module | None = None, gamma: float = 1.0, detach_weight: bool = False
    ) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.gamma = gamma
        self.detach_weight = detach_weight
        if getattr(self.loss, "reduction", None) not in ("mean", "sum", "none"):
            raise ValueError(
                "CSAM weights each example, so the loss must offer reduction 'mean', 'sum' or "
                f"'none', as torch.nn.CrossEntropyLoss does; got {type(self.loss).__name__}"
            )
        if gamma < 0:
            raise ValueError(f"gamma must not be negative (the paper takes 0 to 2); got {gamma}")

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.gamma == 0:
            return self.loss(logits, labels)
        if labels.is_floating_point():
            raise ValueError(f"CSAM needs class indices; got labels of {labels.dtype}")
        if _is_cross_entropy(self.loss):
            log_p = F.log_softmax(logits, 1)
            if log_p.dtype in (torch.float32, torch.float64):
                return self._cross_entropy(log_p, labels)
        each = self._each(logits, labels)
        weight = csam_weight(logits, labels, self.gamma)
        each = (weight.detach() if self.detach_weight else weight) * each
        if self.loss.reduction == "none":
            return each
        if self.loss.reduction == "sum":
            return each.sum()
        return each.sum() / _count(self.loss, labels)

    def _cross_entropy(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """Let torch's likelihood pick, ignore and reduce, on weighted log-probabilities.

        In terms of l = -log p_y the weight is sigmoid(l)^gamma, and an unsure example is one of
        l = infinity (100 will do: sigmoid is 1). The slope of w(l) l is written out, not left to
        autograd, for a GPU spends more time on launching these small steps than on taking them.
        """
        settings: Any = {"ignore_index": self.loss.ignore_index}
        each = F.nll_loss(log_p, labels, reduction="none", **settings)
        each = each.masked_fill(each >= LOG_2, 100.0)
        sigmoid = each.sigmoid()  # 1 / (1 + p)
        weight = sigmoid if self.gamma == 1 else sigmoid**self.gamma
        if self.detach_weight:
            slope = weight
        else:  # w (1 + gamma l (1 - sigmoid))
            slope = torch.lerp(weight.addcmul(weight, each, value=self.gamma), weight, sigmoid)
        weighted = _Weighted.apply(log_p, weight.unsqueeze(1), slope.unsqueeze(1))
        return F.nll_loss(weighted, labels, reduction=str(self.loss.reduction), **settings)

    def _each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The wrapped loss of each example, in the shape of the labels."""
        loss: Any = self.loss
        reduction, loss.reduction = loss.reduction, "none"
        try:
            each = loss(logits, labels)
        finally:
            loss.reduction = reduction
        if each.shape != labels.shape:
            raise ValueError(
                f"{type(loss).__name__} with reduction='none' must give one value a label, "
                f"{tuple(labels.shape)}; got {tuple(each.shape)}"
            )
        return each


class _Weighted(torch.autograd.Function):
    """log_p * weight, where weight follows from log_p such that the derivative is `slope`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_p: Tensor, weight: Tensor, slope: Tensor) -> Tensor:
        return log_p * weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return grad * ctx.saved_tensors[0], None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *others: Any) -> Tensor:  # type: ignore[override]
        return tangent * ctx.saved_tensors[0]


def _is_cross_entropy(loss: nn.Module) -> bool:
    """Whether each example's loss is -log p_y: torch's cross-entropy, without extras."""
    return type(loss) is nn.CrossEntropyLoss and loss.weight is None and not loss.label_smoothing


def _count(loss: nn.Module, labels: Tensor) -> Tensor | int:
    """What torch's mean divides by: class weights of the labels that are not ignored."""
    ignored = getattr(loss, "ignore_index", None)
    weight = getattr(loss, "weight", None)
    if ignored is None and not isinstance(weight, Tensor):
        return labels.numel()
    kept = torch.ones_like(labels, dtype=torch.bool) if ignored is None else labels != ignored
    if not isinstance(weight, Tensor):
        return kept.sum()
    return (weight[labels.clamp(min=0)] * kept).sum()
