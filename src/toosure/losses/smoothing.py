"""Losses that keep predictions soft: label smoothing, the entropy penalty, MbLS and ACLS."""

from typing import Literal

from torch import Tensor, nn

from toosure.losses.loss import Loss, Penalty, Reduction
from toosure.metrics.inputs import check_choice

Over = Literal["all", "others"]
ACLS_READS_RAW_LOGITS = (
    "ACLSLoss with reference='zero' reads the raw logit of each class, which one logit per example "
    "has not: take reference='min'"
)


class LabelSmoothingLoss(Loss):
    """Take cross-entropy to a target that spreads a share of the label over the classes.

    Formula: over "all" the target is (1 - s) e_y + s/K, as torch's; over "others" it is 1 - s for
    the label and s/(K - 1) for each other class, which equals "all" with s K/(K - 1). `smoothing`
    may be a tensor (N,). `smoothing=0` is cross-entropy.
    Reference: Szegedy et al. (2016), arXiv 1512.00567; Müller et al. (2019), arXiv 1906.02629.

    >>> import torch
    >>> LabelSmoothingLoss(0.1)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.2269)
    """

    def __init__(
        self, smoothing: float | Tensor = 0.05, over: Over = "all", reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        check_choice("over", over, ("all", "others"))
        if not isinstance(smoothing, Tensor) and not 0 <= smoothing <= 1:
            raise ValueError(f"smoothing is a share between 0 and 1; got {smoothing}")
        self.smoothing = smoothing
        self.over = over

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        surprise = -logits.log_softmax(1)
        own = surprise.gather(1, labels[:, None]).squeeze(1)

        if self.over == "all":
            rest = surprise.mean(1)
        else:
            others = surprise.scatter(1, labels[:, None], 0.0)
            rest = others.sum(1) / max(1, logits.shape[1] - 1)

        return (1 - self.smoothing) * own + self.smoothing * rest


class EntropyLoss(Penalty):
    """Reward entropy: subtract `weight` times the entropy of the prediction from the loss.

    Formula: L - weight H(p), H(p) = -sum_k p_k log p_k.
    Reference: Pereyra et al. (2017), Regularizing Neural Networks by Penalizing Confident Output
    Distributions, arXiv 1701.06548.

    >>> import torch
    >>> EntropyLoss(weight=0.1)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.6238)
    """

    def __init__(
        self, weight: float = 0.1, base: nn.Module | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight, base, reduction)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_probs = logits.log_softmax(1)
        return (log_probs.exp() * log_probs).sum(1)


class MbLSLoss(Penalty):
    """Penalise logits that fall further than a margin below the largest one.

    Formula: L + weight mean_j relu(max_k z_k - z_j - margin), the mean over all K classes.
    Reference: Liu et al. (2022), The Devil is in the Margin, arXiv 2111.15430.

    >>> import torch
    >>> round(MbLSLoss(margin=1.0).penalty(torch.tensor([[3.0, 0.0]]), None).item(), 4)
    1.0
    """

    def __init__(
        self,
        weight: float = 0.1,
        margin: float = 10.0,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        self.margin = margin

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        gaps = logits.max(1, keepdim=True).values - logits
        return (gaps - self.margin).relu().mean(1)


class ACLSLoss(Penalty):
    """Smooth labels adaptively: pull the top logit down and the others up beyond a margin.

    Formula: L + weight (top relu(z_max - margin)^2 + rest/(K - 1) sum_{j != max} relu(sg(z_max) -
    z_j - margin)^2). The top term reads the raw logit, as the released code does
    (`reference="zero"`), or its distance from the smallest (`reference="min"`).
    Reference: Park et al. (2023), ACLS, arXiv 2308.11911.

    >>> import torch
    >>> round(ACLSLoss(margin=1.0).penalty(torch.tensor([[3.0, 0.0]]), None).item(), 4)
    4.4
    """

    def __init__(
        self,
        weight: float = 0.1,
        margin: float = 10.0,
        top: float = 1.0,
        rest: float = 0.1,
        reference: Literal["zero", "min"] = "zero",
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        check_choice("reference", reference, ("zero", "min"))
        self.margin = margin
        self.top = top
        self.rest = rest
        self.reference = reference
        if reference == "zero":  # one logit per example has no other to be compared with
            self.one_column = ACLS_READS_RAW_LOGITS

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        high, index = logits.max(1, keepdim=True)  # (N, 1)
        low = logits.amin(1, keepdim=True) if self.reference == "min" else 0.0
        top = (high - low - self.margin).relu().square().squeeze(1)

        gaps = (high.detach() - logits - self.margin).relu().square()
        rest = gaps.scatter(1, index, 0.0).sum(1) / max(1, logits.shape[1] - 1)
        return self.top * top + self.rest * rest
