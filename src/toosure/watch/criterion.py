"""The criterion that is watched: one number per split, the mean over its examples."""

from collections.abc import Callable
from copy import copy

from torch import Tensor, nn
from torch.nn import functional as F

from toosure.binary import one_column
from toosure.curvature import MSE
from toosure.losses import MSELoss
from toosure.losses.loss import Loss, per_example_part

Criterion = Callable[[Tensor, Tensor], Tensor]  # of (logits, labels)


def check_criterion(loss: Criterion) -> None:
    """Raise if a loss cannot be called, or gives one value per example."""
    if not callable(loss):
        raise ValueError(
            f"loss must be callable as loss(logits, labels); got {loss!r}: give a module such as "
            "nn.CrossEntropyLoss(), or None for the cross-entropy"
        )
    if getattr(loss, "reduction", "mean") == "none":
        raise ValueError(
            f"{type(loss).__name__} has reduction none, one value per example: give the loss that "
            "is trained, with reduction mean or sum"
        )


def ignored_label(loss: Criterion | None) -> int:
    """Return the label of ignored rows: the loss's `ignore_index`, or torch's default, -100."""
    return int(getattr(loss, "ignore_index", -100))


def hessian_loss(loss: Criterion) -> Criterion | MSE:
    """Return the loss whose Hessian is measured: the same mean, without batch statistics.

    NLLLoss becomes cross-entropy. The outputs of a network that ends in log_softmax do not change
    under another log_softmax, but NLLLoss is linear in them, so its Gauss-Newton matrix would be 0.
    """
    if isinstance(loss, MSELoss):
        return MSE(loss.scale)
    if isinstance(loss, nn.NLLLoss):
        return nn.CrossEntropyLoss(
            loss.weight, ignore_index=loss.ignore_index, reduction=loss.reduction
        )
    if type(loss) is nn.CrossEntropyLoss and loss.ignore_index >= 0:
        loss = copy(loss)
        loss.ignore_index = -100  # the rows to ignore were left out of the data
    return per_example_part(loss) if isinstance(loss, nn.Module) else loss


class BinaryCriterion:
    """Apply a loss of one logit per example to two columns of logits (N, 2).

    The loss gets the logits in the model's shape, (N,) or (N, 1), and labels as floats.
    """

    def __init__(self, loss: Criterion, ndim: int) -> None:
        self.loss = loss
        self.ndim = ndim
        self.reduction = getattr(loss, "reduction", "mean")

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        column = one_column(logits)
        shape = (-1, 1)[: self.ndim]
        return self.loss(column.reshape(shape), labels.to(column.dtype).reshape(shape))


def binary_criterion(loss: Criterion | None, ndim: int) -> Criterion:
    """Return a criterion of two columns for a model with one output.

    Binary cross-entropy equals the cross-entropy of the two columns, and the curvature of that has
    a closed form. Losses of this package take two columns directly.
    """
    if loss is None:
        return nn.CrossEntropyLoss()
    if isinstance(loss, nn.BCELoss) or loss is F.binary_cross_entropy:
        raise ValueError(
            "the loss takes probabilities, but a watch needs logits: remove the model's last "
            "Sigmoid, and train with BCEWithLogitsLoss"
        )
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        raise ValueError(
            f"{type(loss).__name__} needs one output per class; the model has one output: use "
            "BCEWithLogitsLoss"
        )

    if type(loss) is nn.BCEWithLogitsLoss and loss.weight is None and loss.pos_weight is None:
        return nn.CrossEntropyLoss(reduction=loss.reduction)
    return loss if isinstance(loss, Loss) else BinaryCriterion(loss, ndim)
