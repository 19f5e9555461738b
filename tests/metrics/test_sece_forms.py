"""SECE's other forms, its detached gradient, and the bandwidth chosen from the batch."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from toosure import metrics
from toosure.losses import SECELoss
from toosure.metrics.bandwidth import SMALLEST, batch_bandwidth

DENSITIES = {
    "even": lambda u: 0.1 + 0.9 * u,
    "near 1": lambda u: 1 - 0.9 * (1 - u) ** 2,
}
ACCURACIES = {
    "calibrated": lambda c: c,
    "over-confident": lambda c: c - 0.1 * c,
    "under-confident": lambda c: c + 0.3 * c * (1 - c),
}


def drawn(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.1 + 0.9 * torch.rand(n, generator=generator, dtype=torch.float64)
    correct = torch.rand(n, generator=generator, dtype=torch.float64) < confidence
    return confidence, correct


def weights_of(c, bandwidth, leave_one_out=False):
    weights = np.exp(-(((c[:, None] - c) / bandwidth) ** 2) / 2)
    if leave_one_out:
        np.fill_diagonal(weights, 0)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_gap_and_unbiased_against_the_definition(leave_one_out):
    confidence, correct = drawn()
    c = confidence.numpy()
    residual = correct.numpy() - c
    ours = metrics.sece_from_confidence(
        confidence, correct, 0.05, form="gap", leave_one_out=leave_one_out
    )
    gaps = weights_of(c, 0.05, leave_one_out) @ residual
    assert float(ours) == pytest.approx(np.abs(gaps).mean(), abs=1e-12)

    ours = metrics.sece_from_confidence(confidence, correct, 0.05, form="unbiased")
    expected = (residual * (weights_of(c, 0.05, True) @ residual)).mean()
    assert float(ours) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("accuracy", ["calibrated", "over-confident"])
def test_what_is_unbiased_and_what_is_not(accuracy):
    """Over draws of the labels: the mean of `unbiased` is its expectation, 0 where calibrated."""
    c = drawn(80)[0].numpy()
    rng = np.random.default_rng(0)
    true = ACCURACIES[accuracy](c)
    weights = weights_of(c, 0.05, True)
    draws = (rng.random((4000, len(c))) < true) - c
    values = (draws * (draws @ weights.T)).mean(1)
    own = [
        float(
            metrics.sece_from_confidence(
                torch.from_numpy(c), torch.from_numpy(row + c), 0.05, form="unbiased"
            )
        )
        for row in draws[:5]
    ]
    assert own == pytest.approx(values[:5], abs=1e-12)

    expected = ((true - c) * (weights @ (true - c))).mean()
    assert abs(values.mean() - expected) < 4 * values.std() / math.sqrt(len(values))
    gaps = draws @ weights.T
    assert np.abs(gaps.mean(0) - weights @ (true - c)).max() < 0.03
    if accuracy == "calibrated":
        assert expected == 0
        assert np.abs(weights @ c - c).max() > 0.01  # where SECE's own estimate is biased
        assert np.abs(gaps).mean() > 0.05  # and a mean of absolute values always is


@pytest.mark.parametrize("form", ["points", "gap"])
def test_the_detached_gradient_in_closed_form(form):
    confidence, correct = drawn(20)
    confidence.requires_grad_()
    value = metrics.sece_from_confidence(
        confidence, correct, 0.1, form=form, leave_one_out=True, detach=True
    )
    value.backward()
    c = confidence.detach().numpy()
    weights = weights_of(c, 0.1, True)
    if form == "points":
        expected = -np.sign(weights @ correct.numpy() - c) / 20
    else:
        expected = -np.sign(weights @ (correct.numpy() - c)) @ weights / 20
    assert confidence.grad.numpy() == pytest.approx(expected, abs=1e-12)

    through = metrics.sece_from_confidence(confidence, correct, 0.1, form=form, leave_one_out=True)
    assert through.item() == value.item()  # the value is the same, the gradient is not
    (slope,) = torch.autograd.grad(through, confidence)
    assert (slope - confidence.grad).abs().max() > 1e-3


def test_detach_holds_soft_accuracy_and_the_grid_still():
    logits = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 3
    for form in ("points", "grid"):
        z = logits.clone().requires_grad_()
        loss = SECELoss(form=form, bandwidth=0.1, soft_accuracy=True, detach=True)
        (slope,) = torch.autograd.grad(loss.penalty(z, labels), z)
        (through,) = torch.autograd.grad(
            SECELoss(form=form, bandwidth=0.1, soft_accuracy=True).penalty(z, labels), z
        )
        assert slope.isfinite().all() and (slope - through).abs().max() > 1e-4


# The bandwidth from the batch


@pytest.mark.parametrize("n", [128, 2048])
def test_the_rule_minimises_the_error_it_was_derived_from(n):
    c = drawn(n)[0]
    low, high = float(c.min()), float(c.max())
    spread = (high**2 - low**2) / 2 - (high**3 - low**3) / 3
    information = 1 / float(c.var(correction=0))

    def error(log_h):
        h = math.exp(log_h)
        return h**4 * information + spread / (2 * math.sqrt(math.pi) * n * h)

    best = minimize_scalar(error, bounds=(-8, 0), method="bounded", options={"xatol": 1e-9})
    assert float(batch_bandwidth(c)) == pytest.approx(math.exp(best.x), rel=1e-5)


@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("n", [128, 512])
def test_the_rule_is_near_the_best_bandwidth_of_simulated_rows(density, accuracy, n):
    """Exact mean squared error of the estimate of accuracy, at the rule's width and at others."""
    c = np.sort(DENSITIES[density](np.random.default_rng(0).random(n)))
    true = ACCURACIES[accuracy](c)

    def error(h):
        weights = weights_of(c, h)
        bias = weights @ true - true
        variance = weights**2 @ (true * (1 - true))
        return (bias**2 + variance).mean()

    h = float(batch_bandwidth(torch.from_numpy(c)))
    least = min(error(width) for width in np.geomspace(0.005, 1, 40))
    assert error(h) < 1.5 * least
    assert error(0.01) > 2 * error(h)  # the paper's width, at the sizes of a meta batch


def test_the_rule_shrinks_with_the_fifth_root_and_knows_no_labels():
    c = torch.linspace(0.2, 1, 64, dtype=torch.float64)
    many = c.repeat(32)
    assert float(batch_bandwidth(many) / batch_bandwidth(c)) == pytest.approx(0.5, rel=1e-6)
    assert float(batch_bandwidth(torch.full((9,), 0.7))) == SMALLEST
    assert not batch_bandwidth(c.requires_grad_()).requires_grad
    one = metrics.sece_from_confidence(c.detach(), c > 0.5, "auto")
    two = metrics.sece_from_confidence(c.detach(), c > 0.5, float(batch_bandwidth(c)))
    assert float(one) == float(two)


def test_many_rows_take_the_automatic_bandwidth_too():
    confidence, correct = drawn(5000)
    width = float(batch_bandwidth(confidence))
    one = metrics.sece_from_confidence(confidence, correct, "auto")
    assert float(one) == pytest.approx(
        float(metrics.sece_from_confidence(confidence, correct, width)), abs=1e-12
    )


def test_a_bandwidth_that_is_neither_number_nor_auto():
    confidence, correct = drawn(5)
    with pytest.raises(ValueError, match="positive number or \"auto\"; got 'wide'"):
        metrics.sece_from_confidence(confidence, correct, "wide")
    with pytest.raises(ValueError, match="form must be one of"):
        metrics.sece_from_confidence(confidence, correct, form="line")
