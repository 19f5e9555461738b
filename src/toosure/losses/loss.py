"""What every loss here shares: reduction, sums such as `a + 0.5 * b`, and a penalty on a base."""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.metrics.inputs import at_least_float32, check_choice

Reduction = Literal["mean", "sum", "none"]
NO_LABEL = -(2**62)  # to be ignored: every label counts


class Loss(nn.Module):
    """Reduce `each(logits, labels)`, one value an example; `a + 0.5 * b` is a loss again.

    >>> from toosure.losses import BrierLoss, FocalLoss
    >>> loss = FocalLoss(gamma=2.0) + 0.5 * BrierLoss()
    >>> round(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item(), 6)
    0.016013
    """

    cuda_graph: ClassVar[bool | str] = True  # a string is the reason why none can record it

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.reduction = reduction

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each example, (N,)."""
        raise NotImplementedError

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        check_pair(logits, labels)
        each = self.each(at_least_float32(logits), labels.long())
        if each.shape != labels.shape:
            raise ValueError(
                f"a loss gives one value an example, {tuple(labels.shape)}; got "
                f"{tuple(each.shape)}: a setting that differs by example has the labels' shape"
            )
        return each if self.reduction == "none" else getattr(each, self.reduction)()

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
    """Add losses with factors; torch's own can be among them. All must reduce alike."""

    def __init__(self, terms: list[tuple[float, nn.Module]]) -> None:
        for factor, loss in terms:
            if not isinstance(factor, int | float) or not isinstance(loss, nn.Module):
                raise ValueError(
                    "losses are added to losses and multiplied by numbers, a + 0.5 * b; "
                    f"got {type(factor).__name__} * {type(loss).__name__}"
                )
            check_reduces(loss)
        super().__init__(reduction_of([loss for _, loss in terms]))
        flat = [(factor * f, part) for factor, loss in terms for f, part in terms_of(loss)]
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
    """Return the factors and losses of a sum, or the loss itself, once."""
    if isinstance(loss, Sum):
        return list(zip(loss.factors, loss.terms, strict=True))
    return [(1.0, loss)]


class Penalty(Loss):
    """Add `weight * penalty` to a base loss, cross-entropy unless told; `alone` is the term itself.

    Subclasses give `penalty(logits, labels)`: one value an example, (N,), or one of the batch, (),
    which then counts in every example, so that the mean over examples has it once.
    """

    per_example = True  # False where the penalty is a statistic of the batch

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
        """Return what is added, without its weight."""
        raise NotImplementedError

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        base = each_of(self.base, logits, labels)
        if self.weight == 0:
            return base
        return base + (self.weight * self.penalty(logits, labels)).to(base.dtype)

    @property
    def alone(self) -> "Alone":
        """The penalty as a loss of its own, to add to others: `a + 0.5 * MDCALoss().alone`."""
        return Alone(self, self.reduction)


class Alone(Loss):
    """The penalty of a loss, without weight and base."""

    def __init__(self, whole: Penalty, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.whole = whole

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.whole.penalty(logits, labels).to(logits.dtype).expand(len(logits))


def each_of(loss: Any, logits: Tensor, labels: Tensor) -> Tensor:
    """Return any loss's value of each example, (N,)."""
    if isinstance(loss, Loss):
        return loss.each(logits, labels)
    if type(loss) is nn.CrossEntropyLoss:
        smoothing = loss.label_smoothing
        return F.cross_entropy(
            logits, labels, ignore_index=NO_LABEL, reduction="none", label_smoothing=smoothing
        )
    reduction, loss.reduction = loss.reduction, "none"
    try:
        return loss(logits, labels)
    finally:
        loss.reduction = reduction


def per_example_part(loss: Any) -> Any:
    """Return a loss without its statistics of the batch, which have no curvature an example.

    >>> from toosure.losses import FocalLoss, MMCELoss
    >>> per_example_part(MMCELoss(base=FocalLoss()))
    FocalLoss()
    """
    if isinstance(loss, Penalty) and not loss.per_example:
        return per_example_part(loss.base)
    if isinstance(loss, Sum):
        kept = [(f, per_example_part(part)) for f, part in terms_of(loss) if not _of_batch(part)]
        rest = Sum(kept)
        rest.reduction = loss.reduction
        return rest
    return loss


def _of_batch(loss: nn.Module) -> bool:
    return isinstance(loss, Alone) and not loss.whole.per_example


def check_reduces(loss: nn.Module) -> None:
    """Raise unless the loss can give one value an example, each counting alike."""
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


def check_positive(name: str, value: float) -> None:
    """Raise unless a setting that divides is above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be positive; got {value}")


def reduction_of(losses: list[nn.Module]) -> Reduction:
    """Return the reduction that all have, "mean" of none; raise where they differ."""
    found = sorted({str(loss.reduction) for loss in losses}) or ["mean"]
    if len(found) > 1:
        raise ValueError(
            f"losses that are added up must reduce alike; got {' and '.join(found)}: give each "
            f'part (a base, too) the same `reduction`, as in FocalLoss(reduction="{found[-1]}")'
        )
    return found[0]  # type: ignore[return-value]


def check_pair(logits: Tensor, labels: Tensor) -> None:
    """Raise on what can be seen without waiting for the device: shapes, types, a CPU's labels."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not logits.is_floating_point():
        raise ValueError(
            "a loss needs floating logits (N, C) and labels (N,); got "
            f"{logits.dtype} {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be class indices; got {labels.dtype}: call .long()")
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if labels.device.type == "cpu" and len(labels) and not traced:
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
    """Return confidence and hits, (N,) each, of inputs already checked: nothing waits."""
    log_confidence, prediction = logits.log_softmax(1).max(1)
    return log_confidence.exp(), prediction == labels
