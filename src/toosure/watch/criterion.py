"""The criterion that is watched: one number per split, the mean over its examples."""

import inspect
from collections.abc import Callable
from copy import copy
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from toosure.binary import one_column
from toosure.curvature import MSE
from toosure.losses import MSELoss
from toosure.losses.loss import Loss, per_example_part

Criterion = Callable[[Tensor, Tensor], Tensor]  # of (logits, labels)
MAX_WEIGHTS = 10  # of classes that are written out
MAX_TEXT = 300  # characters that are said of a loss


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


def noted_losses(loss: Criterion | None, curved: Criterion | None) -> dict[str, str]:
    """Return what a run notes of the loss that trains, and of the one whose curvature it has."""
    noted = {"loss": criterion_text(loss)}
    return noted if curved is None else noted | {"curvature_loss": criterion_text(curved)}


def criterion_text(loss: object) -> str:
    """Return a loss with its settings as text, the same in every process; None is cross-entropy.

    >>> criterion_text(None), criterion_text(nn.CrossEntropyLoss(label_smoothing=0.1))
    ('CrossEntropyLoss()', 'CrossEntropyLoss(label_smoothing=0.1)')
    >>> criterion_text(F.cross_entropy), criterion_text(partial(F.cross_entropy, label_smoothing=1))
    ('cross_entropy', 'cross_entropy(label_smoothing=1)')
    """
    if loss is None:
        return "CrossEntropyLoss()"
    if isinstance(loss, partial):
        inner, settings = criterion_text(loss.func), loss.keywords
    elif inspect.isroutine(loss):
        return loss.__qualname__[:MAX_TEXT]
    else:
        inner, settings = type(loss).__name__, settings_in(loss)

    parts = [f"{name}={value}" for name, value in settings.items() if is_plain(value)]
    if isinstance(loss, nn.Module):
        parts += [criterion_text(part) for part in parts_of(loss)]
    if isinstance(loss, partial) and not parts:
        return inner
    return f"{inner}({', '.join(parts)})"[:MAX_TEXT]


def parts_of(loss: nn.Module) -> list[nn.Module]:
    """Return the losses inside a loss, those in a list one by one."""
    parts = []
    for part in loss.children():
        parts += list(part) if isinstance(part, nn.ModuleList) else [part]
    return parts


def settings_in(loss: object) -> dict[str, object]:
    """Return the attributes of a loss that may be settings; the defaults of torch are left out."""
    settings = {
        name: value
        for name, value in getattr(loss, "__dict__", {}).items()
        if not name.startswith("_")
    }
    settings.pop("training", None)
    if settings.get("reduction") == "mean":
        del settings["reduction"]
    for name in ("weight", "pos_weight"):
        weights = getattr(loss, name, None)
        if isinstance(weights, Tensor) and weights.numel() <= MAX_WEIGHTS:
            settings[name] = [round(float(each), 6) for each in weights.flatten()]

    if type(loss).__module__.partition(".")[0] != "torch":
        return settings
    known = inspect.signature(type(loss)).parameters
    return {
        name: value
        for name, value in settings.items()
        if name not in known or value != known[name].default
    }


def is_plain(value: object) -> bool:
    """Whether a setting is a number, a text, or a list of numbers."""
    if isinstance(value, list | tuple):
        return all(isinstance(each, int | float) for each in value)
    return isinstance(value, bool | int | float | str)
