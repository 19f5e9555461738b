"""Kernel and smooth errors against their double sums, with gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import betaln
from scipy.stats import beta, dirichlet, norm
from torch import tensor

from toosure import metrics
from toosure.metrics.kernel import pair_sum, sorted_pairs
from toosure.quantiles import root_of


def rows(n=60, classes=4, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.where(
        torch.rand(n, generator=generator) < 0.6,
        logits.argmax(1),
        torch.randint(classes, (n,), generator=generator),
    )
    return logits, labels


def brute_mmce(confidence, correct, weighted=False):
    residual = correct.double() - confidence
    if weighted:
        residual = residual / torch.where(correct, correct.sum(), (~correct).sum())
    kernel = torch.exp(-(confidence[:, None] - confidence).abs() / 0.4)
    square = residual @ kernel @ residual
    return square.sqrt() / (1 if weighted else len(confidence))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rounded", [False, True])
def test_mmce_against_the_double_sum_with_gradients(weighted, rounded):
    confidence, correct = metrics.top_label(*rows(700))
    if rounded:  # many ties
        confidence = (confidence * 20).round() / 20
    ours, brute = (confidence.clone().requires_grad_() for _ in range(2))
    value = metrics.mmce_from_confidence(ours, correct, weighted)
    expected = brute_mmce(brute, correct, weighted)
    value.backward(), expected.backward()
    assert abs(value.item() - expected.item()) < 1e-10
    without_graph = metrics.mmce_from_confidence(confidence, correct, weighted)
    assert abs(without_graph.item() - expected.item()) < 1e-10
    assert torch.allclose(ours.grad, brute.grad, rtol=0, atol=1e-12)


def test_mmce_in_float32_matches_float64():
    logits, labels = rows(5000)
    single = metrics.mmce(logits.float(), labels)
    assert float(single) == pytest.approx(float(metrics.mmce(logits, labels)), abs=1e-6)


def test_mmce_weighted_is_twice_the_plain_when_balanced():
    confidence = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    correct = torch.arange(20) % 2 == 0
    plain = metrics.mmce_from_confidence(confidence, correct)
    weighted = metrics.mmce_from_confidence(confidence, correct, weighted=True)
    assert float(weighted) == pytest.approx(2 * float(plain), abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sorted_pairs_keep_confidence_and_hit_together(dtype):
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(1000, generator=generator, dtype=dtype)
    confidence[:3] = tensor([0.0, 1.0, -0.0], dtype=dtype)
    correct = torch.rand(1000, generator=generator) < 0.5
    values, hits = sorted_pairs(confidence, correct)
    expected = sorted(zip(confidence.tolist(), correct.tolist(), strict=True))
    assert list(zip(values.tolist(), hits.bool().tolist(), strict=True)) == expected


def test_pair_sum_gradcheck():
    generator = torch.Generator().manual_seed(0)
    position = torch.rand(12, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(12, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: pair_sum(x, w, 0.4), (position, weight))


DIFFERENTIABLE = {
    "sece": (metrics.sece, {"bandwidth": 0.1}),
    "sece grid": (metrics.sece, {"bandwidth": 0.1, "form": "grid"}),
    "sece soft": (metrics.sece, {"bandwidth": 0.1, "soft_accuracy": True}),
    "sece others": (metrics.sece, {"bandwidth": 0.1, "leave_one_out": True}),
    "sece gap": (metrics.sece, {"bandwidth": 0.1, "form": "gap"}),
    "sece unbiased": (metrics.sece, {"bandwidth": 0.1, "form": "unbiased"}),
    "dece": (metrics.dece, {"accuracy_slope": 5.0, "bin_temperature": 0.2}),
    "mmce": (metrics.mmce, {}),
    "mmce weighted": (metrics.mmce, {"weighted": True}),
    "mmce reference": (metrics.mmce, {"weighted": True, "normalization": "reference"}),
    "skce biased": (metrics.skce, {"estimator": "biased", "bandwidth": 0.5}),
    "skce unbiased": (metrics.skce, {"bandwidth": 0.5}),
    "skce linear": (metrics.skce, {"estimator": "linear", "bandwidth": 0.5}),
    "kde top": (metrics.kde_ece, {"bandwidth": 0.2}),
    "kde canonical": (metrics.kde_ece, {"bandwidth": 0.2, "form": "canonical"}),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradcheck(name):
    metric, options = DIFFERENTIABLE[name]
    logits, labels = rows(8, 3)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: metric(z, labels, **options), (logits,))


HARD_BATCHES = {
    "saturated": 1e4 * torch.eye(4),
    "all equal": torch.zeros(4, 4),
    "confident": 20 * torch.eye(4),
    "duplicates": tensor([[3.0, 0, 0, 0]]).repeat(4, 1),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("batch", HARD_BATCHES)
def test_gradients_are_finite_where_others_are_nan(name, batch):
    metric, options = DIFFERENTIABLE[name]
    for dtype in (torch.float16, torch.float32, torch.float64):
        for labels in (tensor([0, 1, 2, 3]), tensor([1, 2, 3, 0])):  # all right, all wrong
            logits = HARD_BATCHES[batch].to(dtype, copy=True).requires_grad_()
            value = metric(logits, labels, **options)
            value.backward()
            assert value.isfinite() and logits.grad.isfinite().all(), (dtype, labels)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_finite_at_probability_one(name):
    metric, options = DIFFERENTIABLE[name]
    logits = tensor([[0.0, -math.inf], [1.0, 2.0], [0.5, 0.0]]).requires_grad_()
    metric(logits, tensor([0, 1, 1]), **options).backward()
    assert logits.grad.isfinite().all()


def test_sece_limits():
    logits, labels = rows(50)
    confidence, correct = metrics.top_label(logits, labels)
    narrow = metrics.sece(logits, labels, bandwidth=1e-12)
    assert float(narrow) == pytest.approx(float((correct.double() - confidence).abs().mean()))
    wide = metrics.sece(logits, labels, bandwidth=1e9)
    assert float(wide) == pytest.approx(float((correct.double().mean() - confidence).abs().mean()))
    same = torch.full((4,), 0.7, dtype=torch.float64), tensor([True, True, True, False])
    assert float(metrics.sece_from_confidence(*same)) == pytest.approx(0.05)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert float(metrics.sece(logits[order], labels[order])) == pytest.approx(
        float(metrics.sece(logits, labels)), abs=1e-14
    )


def test_sece_leaving_one_out():
    confidence = tensor([0.5, 0.52, 0.9], dtype=torch.float64)
    correct = tensor([True, False, True])
    ours = metrics.sece_from_confidence(confidence, correct, 0.01, leave_one_out=True)
    expected = (abs(0 - 0.5) + abs(1 - 0.52) + abs(2 / 3 - 0.9)) / 3  # the last one is alone
    assert float(ours) == pytest.approx(expected, abs=1e-12)


def test_sece_in_blocks(monkeypatch):
    import toosure.metrics.differentiable as module

    logits, labels = rows(300)
    for leave_one_out in (False, True):
        whole = metrics.sece(logits, labels, leave_one_out=leave_one_out)
        monkeypatch.setattr(module, "_BLOCK", 7 * 300)
        parts = metrics.sece(logits, labels, leave_one_out=leave_one_out)
        monkeypatch.undo()
        assert float(parts) == pytest.approx(float(whole), abs=1e-14)


@pytest.mark.parametrize("bandwidth", [0.3, 0.01, 0.002])
@pytest.mark.parametrize("power", [1, 8])  # spread, and crowded near 1
def test_sece_of_many_rows_is_the_double_sum(bandwidth, power, monkeypatch):
    import toosure.metrics.differentiable as module

    generator = torch.Generator().manual_seed(0)
    confidence = 1 - torch.rand(3000, generator=generator, dtype=torch.float64) ** power
    correct = torch.rand(3000, generator=generator) < 0.8 * confidence
    dense = metrics.sece_from_confidence(confidence, correct, bandwidth)
    monkeypatch.setattr(module, "_MAX_DIRECT_ROWS", 100)
    fast = metrics.sece_from_confidence(confidence, correct, bandwidth)
    assert fast != dense  # two ways indeed
    assert float(fast) == pytest.approx(float(dense), abs=1e-9)  # as its series promises


def test_skce_against_the_definition_in_blocks(monkeypatch):
    import toosure.metrics.simplex as module

    logits, labels = rows(25)
    probs = logits.softmax(1).numpy()
    residual = np.eye(4)[labels] - probs
    tv = np.abs(probs[:, None] - probs).sum(2) / 2
    upper = np.triu_indices(25, 1)
    h = np.exp(-tv / np.median(tv[upper])) * (residual @ residual.T)
    monkeypatch.setattr(module, "_BLOCK", 4 * 25)
    assert float(metrics.skce(logits, labels)) == pytest.approx(h[upper].mean(), abs=1e-12)
    assert float(metrics.skce(logits, labels, "biased")) == pytest.approx(h.mean(), abs=1e-12)
    pairs = [h[i, i + 1] for i in range(0, 24, 2)]
    assert float(metrics.skce(logits, labels, "linear")) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_kde_against_scipy_in_blocks(monkeypatch):
    import toosure.metrics.simplex as module

    monkeypatch.setattr(module, "_BLOCK", 3 * 9)
    logits, labels = rows(9, 3)
    probs, width = logits.softmax(1).numpy(), 0.1
    confidence, correct = (v.numpy() for v in metrics.top_label(logits, labels))
    targets, top, whole = np.eye(3)[labels], [], []
    for j in range(9):
        others = [i for i in range(9) if i != j]
        k = [beta.pdf(confidence[j], confidence[i] / width + 1, (1 - confidence[i]) / width + 1)
             for i in others]  # fmt: skip
        top.append(abs(np.dot(k, correct[others]) / np.sum(k) - confidence[j]))
        k = [dirichlet.pdf(probs[j] / probs[j].sum(), probs[i] / width + 1) for i in others]
        whole.append(np.abs(k @ targets[others] / np.sum(k) - probs[j]).sum())
    ours = metrics.kde_ece(logits, labels, width)
    assert float(ours) == pytest.approx(np.mean(top), abs=1e-10)
    ours = metrics.kde_ece(logits, labels, width, form="canonical")
    assert float(ours) == pytest.approx(np.mean(whole), abs=1e-10)


@pytest.mark.parametrize("form", ["top", "canonical"])
def test_kde_of_float32_is_that_of_its_values(form):
    """Margins past 17, where a float32 confidence is 1 and log(1 - c) would be lost."""
    generator = torch.Generator().manual_seed(0)
    logits = 12 * torch.randn(400, 5, generator=generator)
    labels = torch.where(torch.rand(400, generator=generator) < 0.9, logits.argmax(1), 0)
    assert (metrics.top_label(logits, labels)[0] == 1).sum() > 50
    single, double = (metrics.kde_ece(z, labels, form=form) for z in (logits, logits.double()))
    assert float(single) == pytest.approx(float(double), rel=1e-9)


def test_kde_beyond_double_confidences():
    """log(1 - c) is the margin: Beta densities of two rows at margins 40 and 60 by hand."""
    margins = np.array([3.0, 40.0, 60.0])
    correct = np.array([True, False, True])
    c, doubt = 1 / (1 + np.exp(-margins)), np.exp(-margins) / (1 + np.exp(-margins))
    alpha, beta_ = c / 0.1 + 1, doubt / 0.1 + 1
    log_k = (alpha - 1) * np.log(c)[:, None] + (beta_ - 1) * np.log(doubt)[:, None]
    log_k -= betaln(alpha, beta_)
    k = np.exp(log_k) * (1 - np.eye(3))
    expected = np.abs(k @ correct / k.sum(1) - c).mean()
    logits = torch.stack([tensor(margins), torch.zeros(3).double()], 1)
    ours = metrics.kde_ece(logits, tensor(1 - correct), bandwidth=0.1)
    assert float(ours) == pytest.approx(expected, abs=1e-12)


def brute_smece(confidence, correct, width, points=40001):
    """The smoothed gap at the middles of many slices, with seven images of each row."""
    t = (np.arange(points) + 0.5) / points
    gap = np.zeros(points)
    for c, a in zip(confidence, correct, strict=True):
        for shift in range(-6, 7, 2):
            for image in (shift + c, shift - c):
                if -9 * width < image < 1 + 9 * width:
                    gap += (a - c) * np.exp(-(((t - image) / width) ** 2) / 2)
    return np.abs(gap).mean() / (width * math.sqrt(2 * math.pi)) / len(confidence)


SMOOTH = {
    "spread": lambda rng: (rng.random(200), rng.random(200) < 0.5),
    "crowded": lambda rng: (1 - 0.5 * rng.random(200) ** 6, rng.random(200) < 0.9),
    "calibrated": lambda rng: (lambda c: (c, rng.random(200) < c))(rng.random(200)),
    "four": lambda rng: (np.array([0.78, 0.53, 0.92, 0.48]), np.array([True, False, True, False])),
    "edges": lambda rng: (np.array([0.0, 1.0, 1.0, 0.5]), np.array([True, False, True, False])),
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("width", [1.0, 0.2, 0.03, 0.004])
def test_smece_at_a_width_against_brute_force(name, width):
    confidence, correct = SMOOTH[name](np.random.default_rng(0))
    ours = metrics.smece_from_confidence(tensor(confidence), tensor(correct), width)
    assert abs(float(ours) - brute_smece(confidence, correct, width)) < 1e-6


def test_smece_at_the_narrowest_width():
    rng = np.random.default_rng(0)
    confidence, correct = rng.permutation(50) / 50 + 0.01, rng.random(50) < 0.5
    ours = metrics.smece_from_confidence(tensor(confidence), tensor(correct), 1e-5)
    assert float(ours) == pytest.approx(np.abs(correct - confidence).mean(), abs=1e-8)
    with pytest.raises(ValueError, match="bandwidth must be at least 1e-05; got 1e-06"):
        metrics.smece_from_confidence(tensor(confidence), tensor(correct), 1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_smece_is_its_own_width(name):
    confidence, correct = SMOOTH[name](np.random.default_rng(0))
    h = float(metrics.smece_from_confidence(tensor(confidence), tensor(correct)))
    assert brute_smece(confidence, correct, h - 1e-6) > h - 1e-6
    assert brute_smece(confidence, correct, h + 1e-6) < h + 1e-6


def test_smece_of_perfect_rows_is_zero():
    assert float(metrics.smece_from_confidence(torch.ones(5), torch.ones(5, dtype=bool))) == 0
    confidence = torch.full((4,), 0.75, dtype=torch.float64)
    assert float(metrics.smece_from_confidence(confidence, torch.arange(4) > 0)) == 0


def test_smece_of_a_tiny_error():
    confidence = torch.full((1000,), 0.99999, dtype=torch.float64)
    ours = metrics.smece_from_confidence(confidence, torch.ones(1000, dtype=bool))
    assert float(ours) == pytest.approx(1e-5, abs=1e-7)


def test_smece_of_tiny_errors_of_both_signs():
    """Far apart nothing cancels at so narrow a width; near each other it does."""
    confidence = tensor([0.0, 1.0, 1e-5, 1 - 3e-5], dtype=torch.float64)
    correct = tensor([False, True, False, True])
    apart = metrics.smece_from_confidence(confidence, correct)
    assert float(apart) == pytest.approx((1e-5 + 3e-5) / 4, rel=1e-12)
    # 1e4 rows at 0.5 and just above it, with gaps of +1 and -1.5 rows
    confidence = tensor([0.5, 0.5001], dtype=torch.float64).repeat_interleave(5000)
    correct = torch.cat([torch.arange(5000) < 2501, torch.arange(5000) < 2499])
    near = float(metrics.smece_from_confidence(confidence, correct))
    t = np.linspace(-12 * near, 1e-4 + 12 * near, 20001)
    bumps = 1e-4 * norm.pdf(t, 0, near) - 1.5e-4 * norm.pdf(t, 1e-4, near)
    assert near == pytest.approx(np.trapezoid(np.abs(bumps), t), abs=1e-6)
    assert near < 2e-4  # the sum without cancellation is 2.5e-4


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1e-9, 1e-5, 0.25, 0.5, 1 - 1e-4, 1 - 1e-8, 1.0])
            | st.floats(0, 1),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_smece_of_any_few_rows(pairs):
    """Always a number between the two areas that bound it: of full and of no smoothing."""
    confidence, correct = (tensor(each) for each in zip(*pairs, strict=True))
    confidence = confidence.double()
    residual = correct.double() - confidence
    value = float(metrics.smece_from_confidence(confidence, correct))
    assert abs(float(residual.mean())) - 1e-6 <= value <= float(residual.abs().mean()) + 1e-6


def test_roots_are_those_of_scipy_bit_for_bit():
    random = np.random.default_rng(0)
    compared = 0
    for _ in range(500):
        slope, place, level, size = random.normal(size=4) * (3, 1, 0.3, 100)
        low = random.random()
        high = low + random.random()

        def curve(x, slope=slope, place=place, level=level, size=size):
            return size * (math.tanh(slope * (x - place)) + level)

        if (curve(low) < 0) != (curve(high) < 0):
            assert root_of(curve, low, high) == brentq(curve, low, high, xtol=1e-9)
            compared += 1
    assert compared > 50
