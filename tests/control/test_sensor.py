"""Sensors: known temperatures are found, and standard errors are those of repeated draws."""

import math

import pytest
import torch
from torch import nn

from toosure.control import log_temperature, signed_gap
from toosure.control.sensor import SENSORS, read
from toosure.metrics import ece


def draw(temperature, seed, n=400, classes=4):
    """Logits whose labels follow softmax(logits / temperature)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator)
    probs = (logits / temperature).softmax(1)
    return logits, torch.multinomial(probs, 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_log_temperature_is_found_within_its_standard_error(temperature):
    estimates = [log_temperature(*draw(temperature, seed)) for seed in range(150)]
    z = torch.tensor([(e.value - math.log(temperature)) / e.standard_error for e in estimates])
    assert abs(z.mean()) < 0.25  # 3 standard errors of the mean of 150
    assert 0.85 < z.std() < 1.17
    assert 0.90 <= (z.abs() < 2).double().mean() <= 0.99


@pytest.mark.parametrize(("scale", "wrong"), [(1.0, 0.2), (4.0, 0.0), (4.0, 0.2)])
def test_the_standard_error_is_the_spread_over_splits_where_no_temperature_is_right(scale, wrong):
    """Over-fitted logits and wrong labels: the sandwich of White holds where 1 / (N h) does not."""
    generator = torch.Generator().manual_seed(3)
    logits, labels = draw(1.0, seed=3, n=60_000)
    mistaken = torch.rand(len(labels), generator=generator) < wrong
    labels = torch.where(mistaken, torch.randint(4, labels.shape, generator=generator), labels)
    logits = scale * logits

    all_rows = log_temperature(logits, labels).value
    splits = zip(logits.split(400), labels.split(400), strict=True)
    estimates = [log_temperature(*split) for split in splits]
    z = torch.tensor([(e.value - all_rows) / e.standard_error for e in estimates])
    assert len(z) == 150 and abs(z.mean()) < 0.25
    assert 0.85 < z.std() < 1.17


def test_the_signed_gap_is_confidence_minus_accuracy_with_its_standard_error():
    logits, labels = draw(1.6, seed=0, n=2000)
    confidence, top = logits.softmax(1).max(1)
    difference = confidence - (top == labels).float()
    value, error = signed_gap(logits, labels)
    assert value == pytest.approx(difference.mean().item(), abs=1e-6)
    assert error == pytest.approx(difference.std().item() / math.sqrt(2000), rel=1e-5)
    assert value > 2 * error


@pytest.mark.parametrize("sensor", SENSORS)
def test_both_sensors_tell_too_sure_from_not_sure_enough(sensor):
    for temperature, sign in ((2.0, 1), (0.5, -1)):
        reading = read(sensor, *draw(temperature, seed=1))
        assert sign * reading.error > 2 * reading.standard_error
        logits, labels = draw(temperature, seed=1)
        accuracy = (logits.argmax(1) == labels).double().mean().item()
        assert reading.accuracy == accuracy
        assert reading.accuracy_error == pytest.approx(math.sqrt(accuracy * (1 - accuracy) / 400))


def test_where_there_is_no_temperature_the_error_is_unknown():
    logits = 2 * torch.eye(4)
    assert log_temperature(logits, torch.arange(4)).standard_error == math.inf  # every row right
    assert log_temperature(-logits, torch.arange(4)).standard_error == math.inf  # below chance
    broken = torch.full((4, 4), math.nan)
    assert log_temperature(broken, torch.arange(4)).standard_error == math.inf
    assert signed_gap(broken, torch.arange(4)).standard_error == math.inf
    assert log_temperature(logits[:1], torch.tensor([1])).standard_error == math.inf


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e5])
def test_right_and_no_better_than_chance_are_told_apart_at_any_scale(scale):
    logits, labels = draw(1.0, seed=2, n=50)
    assert log_temperature(scale * logits, logits.argmax(1)).value == -math.inf
    assert log_temperature(scale * logits, logits.argmin(1)).value == math.inf
    assert log_temperature(torch.full((50, 4), scale), labels).value == math.inf


def test_one_logit_per_example_is_two_classes():
    logit = torch.tensor([3.0, -2.0, 1.0, -1.0, 2.0])
    labels = torch.tensor([1, 0, 0, 0, 1])
    two = torch.stack([torch.zeros(5), logit], 1)
    assert read("log_temperature", logit, labels) == read("log_temperature", two, labels)


def test_outputs_that_are_not_finite_have_no_accuracy():
    reading = read("log_temperature", torch.full((20, 2), torch.nan), torch.zeros(20, dtype=int))
    assert math.isnan(reading.accuracy) and reading.standard_error == math.inf


@pytest.mark.parametrize("sensor", [log_temperature, signed_gap])
def test_probabilities_are_refused_as_logits_and_taken_as_probs(sensor):
    logits, labels = draw(1.6, seed=0)
    for probs, y in ((logits.softmax(1), labels), (logits[:, 0].sigmoid(), labels % 2)):
        with pytest.raises(ValueError, match="probabilities") as refused:
            ece(probs, y)
        with pytest.raises(ValueError) as error:
            sensor(probs, y)
        assert str(error.value) == str(refused.value)
    assert sensor(probs=logits.double().softmax(1), labels=labels) == pytest.approx(
        sensor(logits, labels), rel=1e-5
    )

    # A network that has come near such outputs goes on being steered.
    sure = nn.functional.one_hot(labels.roll(1), 4).float()
    assert math.isfinite(read("gap", sure, labels).error)
