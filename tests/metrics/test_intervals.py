"""Bootstrap intervals: seeded, equal to plain resampling, and covering what they should."""

import numpy as np
import pytest
import torch
from torch import tensor

from toosure import metrics


def rows(n=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator, dtype=torch.float64) * 2
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator).squeeze(1)
    return logits, labels


VECTORISED = [
    metrics.accuracy,
    metrics.aurc,
    metrics.auroc_misclass,
    metrics.binary_entropy,
    metrics.brier,
    metrics.debiased_ece,
    metrics.ece,
    metrics.entropy,
    metrics.mce,
    metrics.nll,
    metrics.rmsce,
]


@pytest.mark.parametrize("metric", VECTORISED, ids=lambda m: m.__name__)
@pytest.mark.parametrize("n", [300, 3000])  # rows themselves, and cells of rows
def test_vectorised_is_plain_resampling(metric, n):
    """The same distribution as calling the metric on resampled rows: means and spreads agree."""
    logits, labels = rows(n)
    fast = metrics.confidence_interval(metric, logits, labels, samples=1000, method="percentile")
    rng = np.random.default_rng(1)
    drawn = [
        float(metric(logits[i], labels[i]))
        for i in (torch.from_numpy(rng.integers(n, size=n)) for _ in range(150))
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert float(fast.value) == float(metric(logits, labels))
    noise = 0.35 * (high - low)  # what 150 resamples leave uncertain
    assert float(fast.low) == pytest.approx(low, abs=noise)
    assert float(fast.high) == pytest.approx(high, abs=noise)


def test_any_metric_gets_an_interval():
    logits, labels = rows(60)

    def mine(logits, labels, power=1):
        return metrics.nll(logits, labels) ** power

    fast = metrics.confidence_interval(metrics.nll, logits, labels, samples=400)
    slow = metrics.confidence_interval(mine, logits, labels, samples=400, power=1)
    assert float(slow.high - slow.low) == pytest.approx(float(fast.high - fast.low), rel=0.3)
    for metric in (metrics.smece, metrics.mmce, metrics.classwise_ece, metrics.adaptive_ece):
        value, low, high = metrics.confidence_interval(metric, logits, labels, samples=30)
        assert low <= high and value.isfinite()


def test_seed_decides():
    logits, labels = rows()
    first, again, other = (
        metrics.confidence_interval(metrics.ece, logits, labels, seed=s) for s in (0, 0, 1)
    )
    assert first == again and first.low != other.low


def test_options_reach_the_metric():
    logits, labels = rows()
    interval = metrics.confidence_interval(metrics.ece, logits, labels, bins=5, edge="left", norm=2)
    assert interval.value == metrics.ece(logits, labels, bins=5, edge="left", norm=2)


def test_ties_are_exact_cells():
    confidence = tensor([0.75]).repeat(5000).double()
    correct = torch.arange(5000) % 4 == 0  # accuracy 1/4: the error is a shifted binomial share
    interval = metrics.confidence_interval_from_confidence(
        metrics.ece_from_confidence, confidence, correct, samples=4000
    )
    half = 1.96 * np.sqrt(0.25 * 0.75 / 5000)
    assert float(interval.low) == pytest.approx(0.5 - half, abs=0.1 * half)
    assert float(interval.high) == pytest.approx(0.5 + half, abs=0.1 * half)


def test_coverage_of_the_basic_interval():
    """100 sets of 500 rows, over-confident by 10 points everywhere: about 95 % cover it."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(100):
        confidence = rng.uniform(0.6, 1.0, 500)
        correct = rng.random(500) < confidence - 0.1
        _, low, high = metrics.confidence_interval_from_confidence(
            metrics.ece_from_confidence, tensor(confidence), tensor(correct), samples=200, bins=5
        )
        covered += float(low) <= 0.1 <= float(high)
    assert covered >= 0.88 * 100


def test_wrong_options():
    with pytest.raises(ValueError, match="method must be one of"):
        metrics.confidence_interval(metrics.ece, *rows(), method="magic")
