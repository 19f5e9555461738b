"""Eq. 4 of CSAM: any per-example loss, weighted down where the network is already sure."""

import math
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.binary import is_one_column
from toosure.losses.loss import ReducingLoss, unreduced
from toosure.losses.one_column import two_class_pair

LOG_2 = math.log(2)


def csam_weight(logits: Tensor, labels: Tensor, gamma: float | Tensor) -> Tensor:
    """Return 1 where p_y <= 1/2 and (1 + p_y)^(-gamma) above, for classes along dimension 1.

    The weight jumps at 1/2, from 1 to 1.5^(-gamma), as published.
    Reference: Tan et al., ICLR 2026, Eq. 4.

    >>> csam_weight(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]), gamma=1.0)
    tensor([0.5317, 1.0000])
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    index = labels.clamp(0, logits.shape[1] - 1).unsqueeze(1)  # an ignored label may be any number
    p = F.log_softmax(wide, 1).gather(1, index).squeeze(1).exp()
    return (1 + F.threshold(p, 0.5, 0.0)) ** -gamma  # p counts as 0 up to 1/2; (N,)


class CSAMLoss(nn.Module):
    """Weight `loss` per example by `csam_weight`: the loss of CSAM's second pass.

    Formula: l(z, y) if p_y <= 1/2, else (1 + p_y)^(-gamma) * l(z, y), reduced as `loss` reduces.
    Published for cross-entropy, 0 <= gamma <= 2; on top of focal loss or ACLS the same weight
    multiplies that loss. `detach_weight` stops the gradient through the weight. `gamma=0` is
    `loss` itself. `loss` must offer `reduction`, as torch's losses do. One logit per example,
    (N,) or (N, 1), with labels 0 and 1, goes with `nn.BCEWithLogitsLoss` or any other.
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
        self.gamma: float | Tensor = gamma  # a tensor if a controller changes it
        self.detach_weight = detach_weight

        if getattr(self.loss, "reduction", None) not in ("mean", "sum", "none"):
            raise ValueError(
                "CSAM weights each example, so the loss must offer reduction 'mean', 'sum' or "
                f"'none', as torch.nn.CrossEntropyLoss does; got {type(self.loss).__name__}"
            )
        if gamma < 0:
            raise ValueError(f"gamma must not be negative (the paper takes 0 to 2); got {gamma}")

    def plain(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the wrapped loss without weights, also of one logit per example."""
        if is_one_column(logits) and not isinstance(self.loss, nn.BCEWithLogitsLoss):
            logits, labels = two_class_pair(self.loss, logits, labels)
        return cast(ReducingLoss, self.loss)(logits, labels)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = cast(ReducingLoss, self.loss)
        if is_one_column(logits):
            if isinstance(self.loss, nn.BCEWithLogitsLoss):
                return self._binary_cross_entropy(logits, labels)
            logits, labels = two_class_pair(self.loss, logits, labels)
        if _is_known_to_be(self.gamma, 0):
            return loss(logits, labels)
        if labels.is_floating_point():
            raise ValueError(f"CSAM needs class indices; got labels of {labels.dtype}")

        # Plain cross-entropy has a faster form; torch.func cannot look into its custom gradient.
        if self._is_plain() and not torch._C._are_functorch_transforms_active():
            log_p = F.log_softmax(logits, 1)
            if log_p.dtype in (torch.float32, torch.float64):
                return self._cross_entropy(log_p, labels)

        each = self._weight(logits, labels) * self._each(logits, labels)

        if loss.reduction == "none":
            return each
        if loss.reduction == "sum":
            return each.sum()
        return each.sum() / _count(self.loss, labels)

    def _weight(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weight of each example, in the shape of the labels."""
        weight = csam_weight(logits, labels, self.gamma)
        return weight.detach() if self.detach_weight else weight

    def _binary_cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Weight torch's binary cross-entropy of one logit per example, (N,) or (N, 1)."""
        columns, classes = two_class_pair(self.loss, logits, labels)
        targets = labels.to(logits.dtype).view_as(logits)
        if _is_known_to_be(self.gamma, 0):
            return cast(ReducingLoss, self.loss)(logits, targets)

        each = self._weight(columns, classes).view_as(logits) * self._each(logits, targets)
        reduction = cast(ReducingLoss, self.loss).reduction
        if reduction == "none":
            return each
        return each.sum() if reduction == "sum" else each.mean()

    def _is_plain(self) -> bool:
        """Whether each example's loss is -log p_y: torch's cross-entropy, without extras."""
        loss = self.loss
        return (
            type(loss) is nn.CrossEntropyLoss and loss.weight is None and not loss.label_smoothing
        )

    def _cross_entropy(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """Let torch pick, ignore and reduce, on weighted log-probabilities."""
        loss = self.loss
        assert isinstance(loss, nn.CrossEntropyLoss)
        weighted = _WeightedLogProbs.apply(
            log_p, labels, loss.ignore_index, self.gamma, self.detach_weight
        )
        return F.nll_loss(
            weighted, labels, ignore_index=loss.ignore_index, reduction=loss.reduction
        )

    def _each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the wrapped loss of each example, in the shape of the labels."""
        each = unreduced(cast(ReducingLoss, self.loss), logits, labels)
        if each.shape != labels.shape:
            raise ValueError(
                f"{type(self.loss).__name__} with reduction='none' must give one value per label, "
                f"{tuple(labels.shape)}; got {tuple(each.shape)}"
            )
        return each


class _Context(Protocol):
    """What the pass back remembers of the pass forward."""

    saved_tensors: tuple[Tensor, Tensor, Tensor]
    settings: tuple[int, float | Tensor, bool]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _WeightedLogProbs(torch.autograd.Function):
    """The log-probabilities times the weight of their example.

    The gradient is written out, not left to autograd, because a GPU takes longer to launch these
    small steps than to run them: 9 kernels instead of 24.
    """

    @staticmethod
    def forward(
        ctx: _Context,
        log_p: Tensor,
        labels: Tensor,
        ignored: int,
        gamma: float | Tensor,
        detach: bool,
    ) -> Tensor:
        weight, slope = _weight_and_slope(log_p, labels, ignored, gamma, detach)
        ctx.save_for_backward(log_p, labels, slope)
        ctx.settings = (ignored, gamma, detach)
        return log_p * weight

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        log_p, labels, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative needs the gradient of the slope
            _, slope = _weight_and_slope(log_p, labels, *ctx.settings)
        return grad * slope, None, None, None, None


def _weight_and_slope(
    log_p: Tensor, labels: Tensor, ignored: int, gamma: float | Tensor, detach: bool
) -> tuple[Tensor, Tensor]:
    """Return w and the derivative of w(l) l in l = -log p_y: w (1 + gamma l p / (1 + p)).

    In terms of l, 1 / (1 + p) is sigmoid(l). Where p_y <= 1/2 the weight is 1, as for l = infinity;
    100 is large enough, as its sigmoid is 1.
    """
    each = F.nll_loss(log_p, labels, ignore_index=ignored, reduction="none").unsqueeze(1)
    each.masked_fill_(each >= LOG_2, 100.0)
    sigmoid = each.sigmoid()
    weight = sigmoid if _is_known_to_be(gamma, 1) else sigmoid**gamma
    if detach:
        return weight, weight.detach()
    if isinstance(gamma, Tensor):
        return weight, torch.lerp(weight + gamma * weight * each, weight, sigmoid)
    return weight, torch.lerp(weight.addcmul(weight, each, value=gamma), weight, sigmoid)


def _is_known_to_be(gamma: float | Tensor, number: int) -> bool:
    """Whether gamma is known to be a number; a tensor is not read, as that waits for the device."""
    return not isinstance(gamma, Tensor) and gamma == number


def _count(loss: nn.Module, labels: Tensor) -> Tensor | int:
    """Return the divisor of torch's mean: class weights of the labels that are not ignored."""
    ignored = getattr(loss, "ignore_index", None)
    weight = getattr(loss, "weight", None)
    if ignored is None and not isinstance(weight, Tensor):
        return labels.numel()

    counted = torch.ones_like(labels, dtype=torch.bool) if ignored is None else labels != ignored
    if not isinstance(weight, Tensor):
        return counted.sum()
    return (weight[labels.clamp(0, len(weight) - 1)] * counted).sum()
