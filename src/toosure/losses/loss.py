"""What every loss here shares: reduction, sums such as `a + 0.5 * b`, and a penalty on a base."""

from typing import ClassVar, Literal, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.binary import is_one_column
from toosure.losses.one_column import (
    binary_cross_entropy_rows,
    two_class_pair,
    values_can_be_read,
)
from toosure.metrics.inputs import at_least_float32, check_choice

Reduction = Literal["mean", "sum", "none"]
NO_LABEL = -(2**62)  # given as `ignore_index`, so that torch ignores no label


class ReducingLoss(Protocol):
    """A loss of (logits, labels) with a `reduction`, like torch's losses."""

    reduction: str

    def __call__(self, logits: Tensor, labels: Tensor, /) -> Tensor: ...


class Loss(nn.Module):
    """Reduce `each(logits, labels)`, one value per example; `a + 0.5 * b` is a loss again.

    Logits are (N, C) with class numbers (N,), or one logit per example, (N,) or (N, 1), with labels
    0 and 1 of any type: the same as the two columns [0, z].

    >>> from toosure.losses import BrierLoss, FocalLoss
    >>> loss = FocalLoss(gamma=2.0) + 0.5 * BrierLoss()
    >>> round(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item(), 6)
    0.016013
    """

    cuda_graph: ClassVar[bool | str] = True  # a string is the reason why none can record it
    one_column: bool | str = True  # a string: why one logit per example is not taken

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.reduction = reduction

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each example, (N,)."""
        raise NotImplementedError

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        if is_one_column(logits):
            logits, labels = two_class_pair(self, logits, labels)
        check_pair(logits, labels)

        each = self.each(at_least_float32(logits), labels.long())
        if each.shape != labels.shape:
            raise ValueError(
                f"a loss gives one value per example, {tuple(labels.shape)}; got "
                f"{tuple(each.shape)}: a setting that differs by example has the labels' shape"
            )

        if self.reduction == "none":
            return each
        return each.sum() if self.reduction == "sum" else each.mean()

    def __add__(self, other: nn.Module) -> "Sum":
        return Sum([(1.0, self), (1.0, other)])

    def __radd__(self, other: nn.Module | Literal[0]) -> "Loss":
        if isinstance(other, int) and other == 0:  # where sum([a, b]) begins
            return self
        return Sum([(1.0, other), (1.0, self)])

    def __mul__(self, factor: float) -> "Sum":
        return Sum([(factor, self)])

    __rmul__ = __mul__


class Sum(Loss):
    """Add losses with factors; torch's own can be among them. All must have one reduction."""

    def __init__(self, terms: list[tuple[float, nn.Module]]) -> None:
        for factor, loss in terms:
            if not isinstance(factor, int | float) or not isinstance(loss, nn.Module):
                raise ValueError(
                    "losses are added to losses and multiplied by numbers, a + 0.5 * b; "
                    f"got {type(factor).__name__} * {type(loss).__name__}"
                )
            check_reduces(loss)
        super().__init__(reduction_of([loss for _, loss in terms]))

        # A sum of sums is one flat sum.
        flat = [(factor * inner, part) for factor, loss in terms for inner, part in terms_of(loss)]
        self.factors = [float(factor) for factor, _ in flat]
        self.terms = nn.ModuleList(loss for _, loss in flat)

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        total = torch.zeros_like(logits[:, 0])
        for factor, loss in terms_of(self):
            total = total + factor * each_of(loss, logits, labels)
        return total

    def extra_repr(self) -> str:
        return f"factors={self.factors}"


def terms_of(loss: nn.Module) -> list[tuple[float, nn.Module]]:
    """Return the factors and losses of a sum, or any other loss once with factor 1."""
    if isinstance(loss, Sum):
        return list(zip(loss.factors, loss.terms, strict=True))
    return [(1.0, loss)]


class Penalty(Loss):
    """Add `weight * penalty` to a base loss, which is cross-entropy by default.

    Subclasses define `penalty(logits, labels)`. It returns one value per example, (N,), or one
    value for the batch, (), which is then added to every example, so that the mean over examples
    contains it once. `alone` is the penalty without weight and base.
    """

    per_example: ClassVar[bool] = True  # False if the penalty is a statistic of the batch

    def __init__(
        self, weight: float, base: nn.Module | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        if not weight >= 0:
            raise ValueError(f"weight must not be negative; got {weight}")
        self.weight = weight
        self.base = nn.CrossEntropyLoss(reduction=reduction) if base is None else base
        check_reduces(self.base)
        reduction_of([self, self.base])

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the penalty, (N,) or (), without its weight."""
        raise NotImplementedError

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        base = each_of(self.base, logits, labels)
        if self.weight == 0 or not len(logits):  # no rows have no statistics
            return base
        return base + (self.weight * self.penalty(logits, labels)).to(base.dtype)

    @property
    def alone(self) -> "PenaltyTerm":
        """The penalty as a separate loss, to add to others: `a + 0.5 * MDCALoss().alone`."""
        return PenaltyTerm(self, self.reduction)


class PenaltyTerm(Loss):
    """The penalty of a loss, without its weight and base: a term of a sum."""

    def __init__(self, whole: Penalty, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.whole = whole

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        if not len(logits):
            return logits.sum(1)
        return self.whole.penalty(logits, labels).to(logits.dtype).expand(len(logits))


def each_of(loss: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the value of any loss for each example, (N,)."""
    if isinstance(loss, Loss):
        return loss.each(logits, labels)
    if isinstance(loss, nn.BCEWithLogitsLoss):
        return binary_cross_entropy_rows(loss, logits, labels)

    if type(loss) is nn.CrossEntropyLoss:
        smoothing = loss.label_smoothing
        return F.cross_entropy(
            logits, labels, ignore_index=NO_LABEL, reduction="none", label_smoothing=smoothing
        )

    return unreduced(cast(ReducingLoss, loss), logits, labels)


def unreduced(loss: ReducingLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """Call a loss with reduction "none", and give it its own back."""
    reduction = loss.reduction
    loss.reduction = "none"
    try:
        return loss(logits, labels)
    finally:
        loss.reduction = reduction


def per_example_part(loss: nn.Module) -> nn.Module:
    """Return a loss without its statistics of the batch, which have no curvature per example.

    >>> from toosure.losses import FocalLoss, MMCELoss
    >>> per_example_part(MMCELoss(base=FocalLoss()))
    FocalLoss()
    """
    if isinstance(loss, Penalty) and not loss.per_example:
        return per_example_part(loss.base)
    if not isinstance(loss, Sum):
        return loss

    terms = [
        (factor, per_example_part(term))
        for factor, term in terms_of(loss)
        if not (isinstance(term, PenaltyTerm) and not term.whole.per_example)
    ]
    rest = Sum(terms)
    rest.reduction = loss.reduction  # of an empty sum, too
    return rest


def check_reduces(loss: nn.Module) -> None:
    """Raise unless the loss can give one value per example, all with the same weight."""
    if getattr(loss, "reduction", None) not in ("mean", "sum", "none"):
        raise ValueError(
            "a loss inside another must offer reduction 'mean', 'sum' or 'none', as "
            f"torch.nn.CrossEntropyLoss does; got {type(loss).__name__}"
        )
    if isinstance(getattr(loss, "weight", None), Tensor):
        raise ValueError(
            f"{type(loss).__name__} has class weights, which change what its mean divides by: "
            "leave them out, or use the loss on its own"
        )


def reduction_of(losses: list[nn.Module]) -> Reduction:
    """Return the common reduction of losses, "mean" for none; raise if they differ."""
    reductions = sorted({str(loss.reduction) for loss in losses}) or ["mean"]
    if len(reductions) > 1:
        raise ValueError(
            f"losses that are added up must reduce alike; got {' and '.join(reductions)}: give "
            "each part (a base, too) the same `reduction`, as in "
            f'FocalLoss(reduction="{reductions[-1]}")'
        )
    return cast(Reduction, reductions[0])


def check_pair(logits: Tensor, labels: Tensor) -> None:
    """Raise on what can be seen without waiting for the device: shapes, types, a CPU's labels."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not logits.is_floating_point():
        raise ValueError(
            "a loss needs floating logits (N, C) and labels (N,), or one logit per example; got "
            f"{logits.dtype} {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be class indices; got {labels.dtype}: call .long()")

    if values_can_be_read(labels):
        low, high = labels.aminmax()
        if low < 0 or high >= logits.shape[1]:
            raise ValueError(
                f"labels must be in [0, {logits.shape[1]}); got {low} to {high}: no label is "
                "ignored here, so leave rows without one out"
            )


def log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log p_y of each row, (N,)."""
    log_probs = logits.log_softmax(1)
    return -F.nll_loss(log_probs, labels, ignore_index=NO_LABEL, reduction="none")


def top_label_rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence and correctness, (N,) each, of inputs already checked: nothing waits."""
    log_confidence, prediction = logits.log_softmax(1).max(1)
    return log_confidence.exp(), prediction == labels
