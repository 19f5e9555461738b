"""The temperature: against dense searches and LBFGS, at every size, and where there is no best."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from toosure import metrics
from toosure.posthoc import Temperature, split_temperature, temperature
from toosure.watch.split import WatchedSplit


def drawn(n, classes, true, seed=0, dtype=torch.float64):
    """Logits, and labels from softmax(logits / true)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / true).softmax(1), 1, generator=generator).squeeze(1)
    return logits.to(dtype), labels


def brute(logits, labels):
    """The best log T by a bounded scalar search in float64."""
    z, y = logits.double(), labels[:, None]

    def loss(log_t):
        return -float((z / math.exp(log_t)).log_softmax(1).gather(1, y).mean())

    return minimize_scalar(loss, bounds=(-6, 8), method="bounded", options={"xatol": 1e-9}).x


@settings(deadline=None, max_examples=40)
@given(
    st.integers(20, 200),
    st.integers(2, 8),
    st.floats(0.2, 20),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.integers(0, 1000),
)
def test_newton_finds_what_a_search_finds(n, classes, true, unit, seed):
    logits, labels = drawn(n, classes, true, seed)
    calibrator = Temperature().fit_quietly(logits * unit, labels)
    if calibrator.note:
        return
    assert math.log(float(calibrator.temperature) / unit) == pytest.approx(
        brute(logits, labels), abs=1e-4
    )
    scaled = (logits * unit / calibrator.temperature).requires_grad_()
    loss = torch.nn.functional.cross_entropy(scaled, labels)
    (slope,) = torch.autograd.grad(loss, scaled)
    assert float((slope * scaled.detach()).sum()) == pytest.approx(0, abs=1e-9)  # d NLL / d log T


def test_nll_derivatives_are_those_of_autograd():
    logits, labels = drawn(50, 5, 2.0)
    s = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(logits * s.exp(), labels)
    (first,) = torch.autograd.grad(loss, s, create_graph=True)
    (second,) = torch.autograd.grad(first, s)
    slope, variance = temperature.nll_derivatives(logits, labels, math.exp(-0.3))
    assert slope == pytest.approx(first.item(), abs=1e-12)
    assert slope + variance == pytest.approx(second.item(), abs=1e-12)


def test_lbfgs_of_the_reference_code_finds_the_same():
    """As gpleiss/temperature_scaling does it, LBFGS on T itself from 1.5, but to the end."""
    logits, labels = drawn(2000, 10, 2.5)
    t = torch.full((1,), 1.5, dtype=torch.float64, requires_grad=True)
    tight = {"tolerance_grad": 1e-12, "tolerance_change": 1e-14}
    optimizer = torch.optim.LBFGS([t], max_iter=100, line_search_fn="strong_wolfe", **tight)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / t, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    calibrator = Temperature().fit(logits, labels)
    assert float(calibrator.temperature) == pytest.approx(float(t.detach()), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_many_rows_start_from_few(dtype, monkeypatch):
    """The path of large data, in float32 with float64 sums, on data that is not so large."""
    logits, labels = drawn(200_000, 5, 2.0, dtype=dtype)
    labels, order = labels.sort()  # sorted rows must not spoil the start
    logits = logits[order]
    exact = Temperature().fit(logits, labels).temperature
    passes = []
    original = temperature.nll_derivatives

    def counted(rows, *rest):
        passes.append(len(rows))
        return original(rows, *rest)

    monkeypatch.setattr(temperature, "nll_derivatives", counted)
    monkeypatch.setattr(temperature, "MAX_FLOAT64_NUMBERS", 0)
    rounded = Temperature().fit(logits, labels).temperature
    assert float(rounded) == pytest.approx(float(exact), rel=1e-6)
    assert passes.count(200_000) <= 3 and min(passes) < 20_000


def test_every_row_right_has_no_best_temperature():
    logits, _ = drawn(100, 3, 1.0)
    calibrator = Temperature()
    with pytest.warns(UserWarning, match="every row is right.* T stays 1"):
        calibrator.fit(logits, logits.argmax(1))
    assert float(calibrator.temperature) == 1


def test_worse_than_chance_is_softened_as_far_as_it_goes():
    logits, _ = drawn(100, 3, 1.0)
    calibrator = Temperature()
    with pytest.warns(UserWarning, match="no better than chance"):
        calibrator.fit(logits, logits.argmin(1))
    after = metrics.nll(calibrator(logits), logits.argmin(1))
    assert float(after) == pytest.approx(math.log(3), abs=1e-3)


def test_already_calibrated_stays_so():
    logits, labels = drawn(2000, 4, 1.7)
    once = Temperature().fit(logits, labels)
    calm = once(logits)
    again = Temperature().fit_quietly(calm, labels)
    assert float(again.temperature) == pytest.approx(1, abs=1e-7)
    assert metrics.nll(again(calm), labels) <= metrics.nll(calm, labels)


def test_the_grid_is_the_lowest_ece():
    logits, labels = drawn(1000, 4, 2.0)
    lowest = float(Temperature(criterion="ece", bins=10).fit(logits, labels).temperature)
    errors = [float(metrics.ece(logits / (k / 10), labels, 10)) for k in range(1, 101)]
    assert lowest == pytest.approx((np.argmin(errors) + 1) / 10)
    with pytest.raises(ValueError, match="criterion must be one of 'nll', 'ece'"):
        Temperature(criterion="brier")


def test_split_judges_on_the_other_half():
    logits, labels = drawn(1000, 4, 2.0)
    split = split_temperature(logits, labels, seed=3)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(3))
    fit, judge = order[:500], order[500:]
    assert math.log(split.temperature) == pytest.approx(brute(logits[fit], labels[fit]), abs=1e-5)
    scaled = logits[judge] / split.temperature
    assert split.tce == pytest.approx(float(metrics.ece(scaled, labels[judge])))
    assert split.refinement == pytest.approx(float(metrics.nll(scaled, labels[judge])))
    assert split_temperature(logits, labels, seed=3) == split
    assert split_temperature(logits, labels, seed=4) != split


def test_split_of_rows_that_allow_no_fit():
    """Dead units, or a validation set of two rows: the run goes on, with T = 1."""
    labels = torch.arange(60) % 3
    split = split_temperature(torch.zeros(60, 3), labels)
    assert split.temperature == 1 and split.refinement == pytest.approx(math.log(3))
    two = split_temperature(*drawn(2, 3, 1.0))
    assert two.temperature == 1 and math.isfinite(two.refinement)
    with pytest.raises(ValueError, match="at least 2 rows; got 1"):
        split_temperature(torch.zeros(1, 3), labels[:1])


@pytest.mark.parametrize("n", [1, 2, 3, 60])
def test_the_watch_survives_constant_outputs(n):
    model = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    data = (torch.randn(n, 4), torch.arange(n) % 3)
    split = WatchedSplit("val", model, torch.nn.CrossEntropyLoss(), data, ["temperature"])
    numbers = split.observe(split.logits()).row_values()
    assert ("val/temperature" in numbers) == (n > 1)
    assert numbers["val/nll"] == pytest.approx(math.log(3))


@pytest.mark.parametrize("size", [1e4, 1e8])
def test_one_huge_row_does_not_hide_the_others(size):
    logits, labels = drawn(400, 4, 2.0)
    logits[7] = torch.tensor([size, 0, 0, 0])
    labels[7] = 0
    calibrator = Temperature().fit(logits, labels)
    assert math.log(calibrator.temperature) == pytest.approx(brute(logits, labels), abs=1e-4)


def test_rounding_does_not_change_the_class():
    """Neighbours in float32: z / T rounds them to the same number for most T."""
    low = torch.linspace(10, 1000, 5000)
    logits = torch.stack([low, torch.nextafter(low, torch.tensor(2000.0))], 1)
    for t in (1.1, 3.0, 7.7, 1e4):
        calibrator = Temperature()
        calibrator.set_fitted(temperature=torch.tensor(t))
        assert torch.equal(calibrator(logits).argmax(1), logits.argmax(1))
