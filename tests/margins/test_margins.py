"""Margins, their moments and their summaries against numbers known by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from toosure.margins import (
    LogMoment,
    linearised_margin,
    log_moment,
    normalised_margin,
    predicted_margin,
    robust_margin,
    soft_margin,
    summarise,
    true_margin,
)

EPS = 8 / 255


@pytest.fixture
def linear_net():
    """FIXTURE L: z = Wx + b."""
    model = nn.Linear(2, 3).double()
    model.weight.data = torch.tensor([[1, -1], [0, 2], [-1, 0.5]], dtype=torch.float64)
    model.bias.data = torch.tensor([0.1, 0, -0.2], dtype=torch.float64)
    x = torch.tensor([[0.6, 0.3], [0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    return model, x, torch.tensor([0, 0, 1])


def close(actual, expected):
    torch.testing.assert_close(
        torch.as_tensor(actual).double(),
        torch.tensor(expected, dtype=torch.float64),
        rtol=0,
        atol=1e-7,
    )


def test_numbers_of_fixture_f(fixture_f):
    logits, labels = fixture_f
    close(true_margin(logits, labels), [1.5, -0.9, 3, -0.2])
    close(predicted_margin(logits), [1.5, 0.8, 3, 0.2])
    close(log_moment(true_margin(logits, labels)), -0.01158609)
    close(log_moment(true_margin(logits, labels)).exp(), 0.98848077)
    close(log_moment(true_margin(logits, logits.argmax(1))).exp(), 0.38524424)
    close(
        1 - logits.softmax(1)[range(4), labels],
        torch.sigmoid(-soft_margin(logits, labels)).tolist(),
    )


def test_numbers_of_fixture_l(linear_net):
    model, x, y = linear_net
    logits = model(x).detach()
    close(true_margin(logits, y), [-0.2, 0.7, 1.6])
    close(soft_margin(logits[:1], y[:1]), [-0.45192908])
    close(soft_margin(logits[:1], y[:1], temperature=0.1), [-0.20000037])
    low = [-0.3254902, 0.5745098, 1.52156863]
    for kind in ("linearised", "certified", "attacked"):
        close(robust_margin(model, x, y, EPS, "linf", kind).values, low)
    close(robust_margin(model, x, y, EPS, "l2", "certified").values[0], -0.29920871)
    close(robust_margin(model, x, y, EPS, "l2", "attacked").values[0], -0.29920871)
    close(log_moment(true_margin(logits, y)).exp(), 0.63996153)
    close(log_moment(torch.tensor(low, dtype=torch.float64)), -0.32570285)
    close(normalised_margin(model, x, y, "linf"), [-0.2 / 4, 0.7 / 4, 1.6 / 2.5])
    assert linearised_margin(model, x, y, EPS).bound == "neither"


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 50.0]),
       st.sampled_from([1e-3, 0.1, 1.0, 7.0]))  # fmt: skip
def test_soft_margin_lies_between_its_bounds(classes, seed, scale, temperature):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(16, classes, generator=generator, dtype=torch.float64) * scale
    labels = torch.randint(classes, (16,), generator=generator)
    hard, soft = true_margin(logits, labels), soft_margin(logits, labels, temperature)
    rounding = 1e-13 * (1 + logits.abs().amax())
    assert (soft <= hard + rounding).all()
    assert (hard - temperature * math.log(classes - 1) <= soft + rounding).all()
    assert (predicted_margin(logits) >= hard.abs() * (hard > 0) - rounding).all()


def test_moments_neither_overflow_nor_depend_on_chunks():
    margins = torch.tensor([-1e4, 3.0, 1e4, 0.0])
    close(log_moment(margins), 1e4 - math.log(4))
    many = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 30
    for size in (1, 7, 1000):
        moment = LogMoment()
        for part in many.split(size):
            moment.update(part)
        assert moment.compute() == pytest.approx(float(log_moment(many.double())), rel=1e-13)
    slopes = torch.rand(1000)
    low, high = log_moment(many, -slopes), log_moment(many, slopes)
    assert low < log_moment(many) < high
    with pytest.raises(ValueError, match="no margins were seen"):
        LogMoment().compute()


def test_moments_in_half_precision_and_of_wrong_shapes():
    half = torch.full((100_000,), 5.0, dtype=torch.float16)
    close(log_moment(half), -5.0)
    with pytest.raises(ValueError, match=r"log_weights must have shape \(4,\)"):
        log_moment(torch.ones(4), torch.ones(4, 1))
    moment = LogMoment()
    for wrong in (torch.tensor([1.0, math.nan]), torch.tensor([1.0, -math.inf])):
        with pytest.raises(ValueError, match="margins must be finite; row 1 of 2"):
            moment.update(wrong)
    with pytest.raises(ValueError, match=r"margins must have shape \(N,\)"):
        moment.update(torch.ones(2, 1))


def test_margins_are_differentiable():
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 1])
    assert torch.autograd.gradcheck(lambda z: soft_margin(z, labels), logits)
    assert torch.autograd.gradcheck(lambda z: true_margin(z, labels), logits)


def test_summary_has_numpy_quantiles_and_the_tail():
    margins = torch.arange(-10, 991).double() / 10
    summary = summarise(margins, (0.0, 0.3, 1.0))
    assert summary.quantiles == pytest.approx({0.0: -1.0, 0.3: 29.0, 1.0: 99.0})
    assert summary.nonpositive == 11 and summary.n == 1001
    worst = margins[:10].neg().exp().sum() / margins.neg().exp().sum()
    assert summary.heaviest == pytest.approx(float(worst))


def test_half_precision_and_wrong_inputs():
    half = torch.tensor([[2.0, 0.5]], dtype=torch.float16)
    assert true_margin(half, torch.tensor([0])).dtype == torch.float32
    with pytest.raises(ValueError, match="at least two classes"):
        true_margin(torch.zeros(2, 1), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="logits must be finite"):
        true_margin(torch.tensor([[math.nan, 1.0]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="temperature must be positive"):
        soft_margin(half, torch.tensor([0]), 0.0)
    x, y, model = torch.randn(3, 2), torch.tensor([0, 1, 0]), nn.Linear(2, 2)
    for kind in ("attacked", "linearised", "certified"):
        with pytest.raises(ValueError, match=r"labels must be integers in \[0, 2\)"):
            robust_margin(model, x, y + 1, 0.1, kind=kind)
        with pytest.raises(ValueError, match="at least two classes"):
            robust_margin(nn.Linear(2, 1), x, y * 0, 0.1, kind=kind)
        with pytest.raises(ValueError, match="inputs must be finite; row 0 of 3"):
            robust_margin(model, x * math.nan, y, 0.1, kind=kind)
        with pytest.raises(ValueError, match="chunk must be at least 1; got 0"):
            robust_margin(model, x, y, 0.1, kind=kind, chunk=0)
    with pytest.raises(ValueError, match="inputs must be floating point"):
        linearised_margin(nn.Linear(2, 2), torch.zeros(3, 2).int(), torch.tensor([0, 1, 0]), 0.1)
