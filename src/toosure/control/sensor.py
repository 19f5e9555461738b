"""The sensors of a controller: a signed error of the confidence, and its standard error."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from toosure.metrics.inputs import ArrayLike, as_metric_inputs, as_pair, known_outputs
from toosure.posthoc.temperature import fit_temperature

SensorName = Literal["log_temperature", "gap"]


class SensorReading(NamedTuple):
    """A number and its standard error, which is infinite if the number is unknown."""

    value: float
    standard_error: float


UNKNOWN = SensorReading(0.0, math.inf)


class Reading(NamedTuple):
    """One look at the control split: the signed error (above 0: too sure) and the accuracy.

    The error is inf if the network has not learned anything, -inf if all examples are right.
    """

    error: float
    standard_error: float
    accuracy: float
    accuracy_error: float


def log_temperature(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> SensorReading:
    """Return log T of the temperature that fits best; above 0 the network is over-confident.

    The standard error is of an M-estimator: sqrt(mean g_i^2 / N) / h, with g_i the slope of example
    i's NLL in log T and h the mean curvature. No T is finite if every example is right (log T is
    -inf) or the logits are not better than chance (inf); the standard error is then infinite.

    Reference: Guo et al. (2017), arXiv 1706.04599; White (1982), Maximum likelihood estimation of
    misspecified models.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> estimate = log_temperature(logits, torch.tensor([0, 2, 2, 1]))
    >>> round(estimate.value, 4), round(estimate.standard_error, 2)
    (-0.0935, 0.42)
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if len(labels) < 2 or not bool(torch.isfinite(logits).all()):
        return UNKNOWN

    if bool((logits == logits[:, :1]).all()):  # the same for every class: no better than chance
        return SensorReading(math.inf, math.inf)

    fit = fit_temperature(logits, labels)
    if fit.end:
        return SensorReading(-math.inf if fit.end == "right" else math.inf, math.inf)

    x = logits.double() / fit.temperature  # (N, C)
    p = x.log_softmax(1).exp()
    mean = (p * x).sum(1)
    variance = (p * (x - mean[:, None]) ** 2).sum(1)

    slope = x.gather(1, labels[:, None]).squeeze(1) - mean  # (N,) of each NLL in log T
    curvature = float((variance - slope).mean())
    if not curvature > 0:
        return UNKNOWN
    noise = math.sqrt(float((slope**2).mean()) / len(labels))
    return SensorReading(math.log(fit.temperature), noise / curvature)


def signed_gap(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> SensorReading:
    """Return mean confidence minus accuracy, and its standard error.

    >>> gap = signed_gap(torch.tensor([[0.0, 9.0], [9.0, 0.0]]), torch.tensor([1, 1]))
    >>> round(gap.value, 4), round(gap.standard_error, 4)
    (0.4999, 0.5)
    """
    logits, labels = as_metric_inputs(logits, labels, probs)
    if len(labels) < 2 or not bool(torch.isfinite(logits).all()):
        return UNKNOWN

    confidence, prediction = logits.double().softmax(1).max(1)
    difference = confidence - (prediction == labels).double()
    error = float(difference.std()) / math.sqrt(len(labels))
    return SensorReading(float(difference.mean()), error)


SENSORS: dict[SensorName, Callable[..., SensorReading]] = {
    "log_temperature": log_temperature,
    "gap": signed_gap,
}
# By sensor, in its unit: the gain, and the growth of the error that shows a wrong direction.
GAINS: dict[SensorName, float] = {"log_temperature": 0.3, "gap": 1.0}
WORSE: dict[SensorName, float] = {"log_temperature": 0.3, "gap": 0.1}


def read(sensor: SensorName, logits: Tensor, labels: Tensor) -> Reading:
    """Return the reading of a sensor on the logits of a control split, with their accuracy."""
    with known_outputs():  # a controller has looked at them
        error = SENSORS[sensor](logits, labels)
    logits, labels = as_pair(logits, labels)
    if bool((logits.isnan() | (logits == math.inf)).any()):  # argmax would count some class
        return Reading(error.value, error.standard_error, math.nan, math.nan)
    accuracy = float((logits.argmax(1) == labels).double().mean())
    accuracy_error = math.sqrt(accuracy * (1 - accuracy) / len(labels))
    return Reading(error.value, error.standard_error, accuracy, accuracy_error)
