"""Bins: their edges, equal masses, classes, tables and the bias taken out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from toosure import metrics

confidences = st.lists(
    st.tuples(st.sampled_from([k / 60 for k in range(61)]) | st.floats(0, 1), st.booleans()),
    min_size=1,
    max_size=40,
)


def exact_bins(confidence, bins, edge):
    """The bin of each confidence by comparing with every edge k / bins."""
    edges = [k / bins for k in range(1, bins)]
    if edge == "right":
        return [sum(c > e for e in edges) for c in confidence]
    return [sum(c >= e for e in edges) for c in confidence]


@given(confidences, st.integers(1, 20), st.sampled_from(["right", "left"]))
@settings(max_examples=150, deadline=None)
def test_every_norm_against_the_definition(rows, bins, edge):
    confidence, correct = zip(*rows, strict=True)
    index = exact_bins(confidence, bins, edge)
    gaps, shares = [], []
    for b in set(index):
        inside = [i for i, k in enumerate(index) if k == b]
        gap = math.fsum(confidence[i] - correct[i] for i in inside) / len(inside)
        gaps.append(abs(gap)), shares.append(len(inside) / len(index))
    pair = tensor(confidence, dtype=torch.float64), tensor(correct)
    options = {"bins": bins, "edge": edge}
    expected = sum(s * g for s, g in zip(shares, gaps, strict=True))
    assert float(metrics.ece_from_confidence(*pair, **options)) == pytest.approx(expected)
    squares = sum(s * g * g for s, g in zip(shares, gaps, strict=True))
    assert float(metrics.rmsce_from_confidence(*pair, **options)) == pytest.approx(squares**0.5)
    assert float(metrics.mce_from_confidence(*pair, **options)) == pytest.approx(max(gaps))


@given(confidences, st.integers(1, 20), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_adaptive_against_the_definition_in_any_order(rows, bins, random):
    n = len(rows)
    ranks = [sum(other < c for other, _ in rows) for c, _ in rows]
    index = [bins * r // n for r in ranks]
    expected = sum(
        abs(sum(c - a for (c, a), k in zip(rows, index, strict=True) if k == b)) for b in set(index)
    )
    random.shuffle(rows)
    confidence, correct = zip(*rows, strict=True)
    ours = metrics.adaptive_ece_from_confidence(
        tensor(confidence, dtype=torch.float64), tensor(correct), bins
    )
    assert float(ours) == pytest.approx(expected / n, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_confidence_on_an_edge(dtype):
    confidence, correct = tensor([0.2, 0.6], dtype=dtype), tensor([True, False])
    right = metrics.reliability_from_confidence(confidence, correct, bins=5)
    left = metrics.reliability_from_confidence(confidence, correct, bins=5, edge="left")
    assert right.counts.tolist() == [1, 0, 1, 0, 0]
    assert left.counts.tolist() == [0, 1, 0, 1, 0]


def test_zero_and_one_are_inside():
    table = metrics.reliability_from_confidence(tensor([0.0, 1.0]), tensor([False, True]))
    assert table.counts.tolist() == [1] + [0] * 13 + [1]
    for edge in ("right", "left"):
        pair = tensor([0.0, 1.0]), tensor([False, True])
        assert float(metrics.ece_from_confidence(*pair, edge=edge)) == 0


def test_reliability_is_the_table_behind_ece():
    logits = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 4
    for adaptive, metric in ((False, metrics.ece), (True, metrics.adaptive_ece)):
        table = metrics.reliability(logits, labels, adaptive=adaptive)
        gaps = (table.accuracy - table.confidence).abs().nan_to_num() * table.counts / 500
        assert float(gaps.sum()) == pytest.approx(float(metric(logits, labels)), abs=1e-12)
        full = table.counts > 0
        low, high = table.interval[full].T
        assert ((low <= table.accuracy[full]) & (table.accuracy[full] <= high)).all()
        assert table.edges.shape == (16,) and table.interval.shape == (15, 2)


def test_wilson_interval_against_scipy():
    from scipy.stats import binomtest

    from toosure.metrics.binned import wilson_interval

    for hits, trials, level in ((8, 10, 0.95), (0, 5, 0.9), (7, 7, 0.99)):
        expected = binomtest(hits, trials).proportion_ci(level, method="wilson")
        ours = wilson_interval(tensor(float(hits)).double(), tensor(float(trials)).double(), level)
        assert ours.tolist() == pytest.approx([expected.low, expected.high], abs=1e-12)


@pytest.mark.parametrize("edge", ["right", "left"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("bins", [1, 2, 15])
@pytest.mark.parametrize("scale", [0.3, 3.0, 100.0])
def test_classwise_is_the_mean_of_binary_errors(edge, norm, bins, scale):
    generator = torch.Generator().manual_seed(1)
    logits = scale * torch.randn(300, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (300,), generator=generator)  # class 5 never occurs
    probs = logits.softmax(1)
    expected = [
        metrics.ece_from_confidence(probs[:, k], labels == k, bins=bins, edge=edge, norm=norm)
        for k in range(6)
    ]
    ours = metrics.classwise_ece(logits, labels, bins, edge, norm, reduction="none")
    assert ours.tolist() == pytest.approx([float(e) for e in expected], abs=1e-12)


@pytest.mark.parametrize(("edge", "place"), [("right", 0), ("left", 1)])
def test_classwise_probabilities_on_an_edge(edge, place):
    from toosure.metrics.classwise import classwise_sums

    sums = classwise_sums(torch.zeros(8, 4), torch.arange(8) % 4, bins=4, edge=edge)  # all p = 1/4
    for part, total in zip(sums, (8, 2, 2), strict=True):
        expected = torch.zeros(4, 4)
        expected[:, place] = total
        assert part.tolist() == expected.tolist()


@pytest.mark.parametrize("classes", [63, 64, 200])  # torch's softmax takes over at 64
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_classes_against_plain_softmax(classes, dtype):
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(400, classes, generator=generator, dtype=dtype)
    logits[0, :2] = logits[0].max() + 1  # tied: the first is the prediction
    labels = torch.where(torch.arange(400) % 2 == 0, logits.argmax(1), 1)
    labels[0] = 1
    probs = logits.double().softmax(1)
    top = probs.max(1).values, logits.argmax(1) == labels
    close = {"abs": 1e-6 if dtype == torch.float32 else 1e-12}
    confidence, correct = metrics.top_label(logits, labels)
    assert confidence.tolist() == pytest.approx(top[0].tolist(), **close)
    assert correct.equal(top[1]) and not correct[0]
    errors = [metrics.ece_from_confidence(probs[:, k], labels == k) for k in range(classes)]
    ours = metrics.classwise_ece(logits, labels, reduction="none")
    assert ours.tolist() == pytest.approx([float(e) for e in errors], **close)
    square = (probs - torch.nn.functional.one_hot(labels, classes)).square().sum(1).mean()
    assert float(metrics.brier(logits, labels)) == pytest.approx(float(square), **close)


def test_norm_two_debiased_by_hand():
    """Ten rows of confidence .75 with five hits, and one bin of a single row."""
    confidence = tensor([0.75] * 10 + [0.3], dtype=torch.float64)
    correct = tensor([True] * 5 + [False] * 6)
    expected = 10 / 11 * (0.25**2 - 0.25 / 9) + 1 / 11 * 0.3**2
    ours = metrics.debiased_ece_from_confidence(confidence, correct, norm=2)
    assert float(ours) == pytest.approx(math.sqrt(expected), abs=1e-14)


def test_debiasing_takes_bias_out():
    """Calibrated rows keep 2 - sqrt(2) of E|gap|: 2 E|g| - E|N(g, s)| with g ~ N(0, s)."""
    rng = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(200):
        confidence = tensor(rng.random(3000))
        correct = tensor(rng.random(3000)) < confidence
        plain.append(float(metrics.ece_from_confidence(confidence, correct)))
        debiased.append(float(metrics.debiased_ece_from_confidence(confidence, correct)))
        squared = float(metrics.debiased_ece_from_confidence(confidence, correct, norm=2))
        assert squared < float(metrics.rmsce_from_confidence(confidence, correct))
    assert np.mean(debiased) / np.mean(plain) == pytest.approx(2 - math.sqrt(2), abs=0.03)


def test_folded_normal_mean():
    from scipy.stats import foldnorm

    from toosure.metrics.debiased import folded_normal_mean

    mean, std = tensor([0.3, -0.2, 0.0, 0.5]).double(), tensor([0.1, 0.4, 1.0, 0.0]).double()
    expected = [foldnorm.mean(abs(m) / s, scale=s) for m, s in zip(mean[:3], std[:3], strict=True)]
    assert folded_normal_mean(mean, std).tolist() == pytest.approx([*expected, 0.5])
