"""The criterion as it is watched: one number per split, the mean over its examples."""

from collections.abc import Callable

from torch import Tensor, nn

from toosure.curvature import MSE
from toosure.losses import MSELoss
from toosure.losses.loss import per_example_part

Criterion = Callable[[Tensor, Tensor], Tensor]  # of (logits, labels)


def check_criterion(loss: Criterion) -> None:
    """Raise where a loss gives one value per example, and so nothing to descend on."""
    if getattr(loss, "reduction", "mean") == "none":
        raise ValueError(
            f"{type(loss).__name__} has reduction none, one value per example: give the loss that "
            "is trained, with reduction mean or sum"
        )


def mean_loss(loss: Criterion, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of a loss over examples, also of one that sums, so that splits compare."""
    value = loss(logits, labels).detach()
    if value.numel() != 1:
        raise ValueError(f"the loss must give one number; got shape {tuple(value.shape)}")
    return value / len(labels) if getattr(loss, "reduction", "mean") == "sum" else value


def curved(loss: Criterion) -> Criterion | MSE:
    """Return that of which curvature is taken: the same mean, without statistics of the batch.

    A network that ends in log_softmax and is trained by NLLLoss has the curvature of cross-entropy
    at its outputs, since log_softmax leaves them as they are; NLLLoss alone is linear in them, and
    its Gauss-Newton matrix would be 0.
    """
    if isinstance(loss, MSELoss):
        return MSE(loss.scale)
    if isinstance(loss, nn.NLLLoss):
        return nn.CrossEntropyLoss(
            loss.weight, ignore_index=loss.ignore_index, reduction=loss.reduction
        )
    return per_example_part(loss) if isinstance(loss, nn.Module) else loss
