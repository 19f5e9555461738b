"""The closures that a step is given: one per micro-batch, their shares and their losses."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Closure = Callable[[], Any]  # computes the loss, calls backward, returns the loss


def as_closures(closure: Closure | Iterable[Closure] | None) -> list[Closure]:
    """Return one closure or several as a list; raise if there is none."""
    closures = [closure] if callable(closure) else list(closure or [])
    if not closures:
        raise ValueError(
            "step needs a closure that computes the loss, calls backward, returns it; for Hugging "
            "Face's Trainer there is toosure.integrations.transformers.SAMTrainer"
        )
    return closures


def only_closure(closure: Closure | Iterable[Closure] | None) -> Closure:
    """Return the only closure; raise if there is none or several."""
    closures = as_closures(closure)
    if len(closures) > 1:
        raise ValueError("gradients_ready takes one closure, which runs all micro-batches")
    return closures[0]


def shares_of(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return each closure's fraction of the batch."""
    weights = [1] * count if weights is None else list(weights)
    if len(weights) != count or not all(weight > 0 for weight in weights):
        raise ValueError(f"weights must be a positive number for each of {count}; got {weights}")
    return [weight / sum(weights) for weight in weights]


def mean_loss(losses: list[Any], shares: list[float]) -> Any:
    """Return the loss of the batch, or of the micro-batches before the step was given up."""
    if len(losses) == 1 or any(loss is None for loss in losses):
        return losses[0]

    shares = shares[: len(losses)]
    return sum(loss * share for loss, share in zip(losses, shares, strict=True)) / sum(shares)
