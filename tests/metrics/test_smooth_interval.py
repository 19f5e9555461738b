"""The interval of smECE: its smoothing is the kernel's, and it covers what it should."""

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.metrics.smooth_interval import smooth, trapezoid_weights
from toosure.quantiles import root_of


def test_smoothing_is_the_reflected_gaussian():
    grid, width = 256, 0.05
    masses = np.zeros(grid + 1)
    masses[[0, 40, 256]] = 1, -2, 0.5
    nodes = np.linspace(0, 1, grid + 1)
    expected = np.zeros(grid + 1)
    for mass, c in zip(masses[[0, 40, 256]], nodes[[0, 40, 256]], strict=True):
        for image in (c, -c, 2 - c, 2 + c, c - 2):
            kernel = np.exp(-0.5 * ((nodes - image) / width) ** 2) / (width * np.sqrt(2 * np.pi))
            expected += mass * kernel
    np.testing.assert_allclose(smooth(masses, width), expected, atol=1e-9)
    assert trapezoid_weights(grid) @ smooth(masses, width) == pytest.approx(masses.sum(), abs=1e-9)


@pytest.mark.parametrize(("n", "error"), [(300, 0.0), (300, 0.1), (2000, 0.0), (2000, 0.02)])
def test_coverage_of_a_known_error(n, error):
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        confidence = rng.uniform(0.5, 1.0, n)
        correct = rng.random(n) < confidence - error
        value, low, high = metrics.confidence_interval_from_confidence(
            metrics.smece_from_confidence, torch.tensor(confidence), torch.tensor(correct),
            samples=300,
        )  # fmt: skip
        assert 0 <= low <= value <= high <= 1
        covered += float(low) <= error <= float(high)
    assert covered >= 89  # of 100 at 95 %, fewer cover once in a hundred


def test_a_clear_error_has_the_textbook_width():
    confidence = torch.full((4000,), 0.9, dtype=torch.float64)
    correct = torch.arange(4000) % 10 < 7
    value, low, high = metrics.confidence_interval_from_confidence(
        metrics.smece_from_confidence, confidence, correct
    )
    half = 1.96 * np.sqrt(0.7 * 0.3 / 4000)
    assert float(value - low) == pytest.approx(half, rel=0.15)
    assert float(high - value) == pytest.approx(half, rel=0.15)


def test_nothing_to_smooth_and_seeds():
    sure = torch.ones(20, dtype=torch.float64)
    interval = metrics.confidence_interval_from_confidence(
        metrics.smece_from_confidence, sure, sure.bool()
    )
    assert [float(each) for each in interval] == [0, 0, 0]
    rng = np.random.default_rng(0)
    pair = torch.tensor(rng.random(200)), torch.tensor(rng.random(200) < 0.5)
    first, again, other = (
        metrics.confidence_interval_from_confidence(metrics.smece_from_confidence, *pair, seed=s)
        for s in (0, 0, 1)
    )
    assert first == again and first.low != other.low


def test_the_root_of_a_falling_function():
    for root in (0.11, 0.1999, 0.1000001):
        calls = []

        def cubic(x, root=root, calls=calls):
            calls.append(x)
            return root**3 - x**3

        assert root_of(cubic, 0.1, 0.2) == pytest.approx(root, abs=1e-9)
        assert len(calls) < 20
