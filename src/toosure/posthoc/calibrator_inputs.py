"""The inputs of a calibrator: checks, log 0, and whether they are logits or probabilities."""

from typing import Literal

import torch
from torch import Tensor

from toosure.metrics.confidence import row_chunks
from toosure.metrics.distributions import distribution_problem
from toosure.metrics.inputs import (
    ArrayLike,
    as_metric_inputs,
    at_least_float32,
    check_finite,
    check_one_column,
    known_logits,
)

Outputs = Literal["logits", "probs"]
LOG_ZERO = 87.3365  # -log of the smallest normal float32: log 0 is read as this below the maximum


def rows_of_fit(
    logits: ArrayLike | None, labels: ArrayLike | None, probs: ArrayLike | None
) -> tuple[Tensor, Tensor]:
    """Return the logits (N, C) and labels (N,) of a fit; probabilities become their logarithm."""
    check_one_column(logits)
    with known_logits(probs):  # `check_values` refuses logits that are probabilities
        return as_metric_inputs(logits, labels, probs)


def without_log_zero(logits: Tensor) -> Tensor:
    """Read log 0 as a probability of 1.2e-38 times the row's largest, or its lowest finite one.

    >>> without_log_zero(torch.tensor([[0.0, -torch.inf, -100.0]])).tolist()
    [[0.0, -100.0, -100.0]]
    >>> without_log_zero(torch.tensor([[[0.0, -torch.inf], [1.0, -200.0]]])).tolist()  # tokens
    [[[0.0, -87.33650207519531], [1.0, -200.0]]]
    """
    zero = logits == -torch.inf
    lowest = logits.masked_fill(zero, torch.inf).amin(-1, keepdim=True)  # finite logit
    floor = torch.minimum(logits.amax(-1, keepdim=True) - LOG_ZERO, lowest)
    return torch.where(zero, floor, logits)


def check_values(logits: Tensor) -> Tensor:
    """Return logits without -inf; refuse NaN, +inf, probabilities, and rows all alike."""
    low, high = torch.stack(torch.aminmax(logits)).tolist()
    if low >= 0 and all(distribution_problem(rows) is None for rows in row_chunks(logits)):
        raise ValueError(
            "logits are probabilities (every row sums to 1): give logits, or p.log(); of a model "
            "that ends in Softmax, give what comes before it"
        )

    if low == -torch.inf and high < torch.inf:
        check_finite(logits.amax(1))
        logits = without_log_zero(at_least_float32(logits))
    elif not (low > -torch.inf and high < torch.inf):  # also where NaN
        check_finite(logits.double().sum(1))

    if all(bool((rows.amax(1) == rows.amin(1)).all()) for rows in row_chunks(logits)):
        raise ValueError(
            "logits are constant: every row has the same value for every class, "
            "so there is nothing to calibrate; check what was saved"
        )
    return logits


def check_every_class(labels: Tensor, classes: int, name: str) -> None:
    """Refuse labels that lack a class."""
    missing = (torch.bincount(labels, minlength=classes) == 0).nonzero().flatten().tolist()
    if not missing:
        return

    listed = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    subject = f"class {listed} is" if len(missing) == 1 else f"classes {listed} are"
    raise ValueError(
        f"{name} learns each class on its own, but {subject} never among the {len(labels):,} "
        "labels: add rows of it, or use Temperature or EnsembleTemperature"
    )


def kind_of(outputs: Tensor, kind: Outputs) -> Outputs:
    """Return the kind of outputs: logits with exponentials that sum to 1 count as probabilities."""
    if kind == "probs" or outputs.ndim != 2 or not len(outputs):
        return kind
    normaliser = at_least_float32(outputs.detach()).logsumexp(1)
    return "probs" if bool((normaliser.abs() < 1e-3).all()) else "logits"
