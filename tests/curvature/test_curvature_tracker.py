"""The tracker along real training: right at every step, or it says that it is not."""

import io

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from toosure.curvature import CurvatureTracker, gn_sharpness, hessian_sharpness, kappa_min

RTOL = 1e-3


def digits(n=400):
    data = load_digits()
    x = torch.tensor(data.data[:n], dtype=torch.float32) / 8 - 1
    return x, torch.tensor(data.target[:n])


def network(seed=0, width=32):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(width, 10))


def train(model, data, lr, steps, batch=None, seed=0):
    """Plain (S)GD; yields before each update."""
    x, y = data
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        yield step
        rows = slice(None) if batch is None else torch.randperm(len(x), generator=generator)[:batch]
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("lr", "batch"), [(0.1, None), (0.6, None), (0.3, 64)], ids=["smooth", "edge", "sgd"]
)
def test_right_or_says_so(lr, batch):
    """From the start past the edge of stability; every tenth step against a tight reference."""
    data, model = digits(), network()
    tracker = CurvatureTracker(model, data)
    products, largest = [], 0.0
    for step in train(model, data, lr, 250, batch):
        result = tracker.measure()["gn_sharpness"]
        products.append(result.products)
        if step % 10 == 0 or step < 10:
            exact = gn_sharpness(model, data, rtol=1e-5).value
            error = abs(result.value / exact - 1)
            assert error <= RTOL or not result.converged, (step, result, exact)
            largest = max(largest, exact)
    if lr == 0.6:
        assert largest > 2 / lr  # the run did reach the edge of stability
    assert sum(products) / len(products) < 8  # a cold solve takes 8 to 15


@pytest.mark.parametrize("seed", range(3))
def test_several_seeds_and_the_fall_of_late_training(seed):
    """A run to interpolation, where the sharpness falls by orders of magnitude."""
    data, model = digits(80), network(seed)
    tracker = CurvatureTracker(model, data)
    for step in train(model, data, 0.5, 1200):
        if step % 3 == 0:
            result = tracker.measure()["gn_sharpness"]
        if step % 60 == 0:
            exact = gn_sharpness(model, data, rtol=1e-5).value
            assert abs(result.value / exact - 1) <= RTOL or not result.converged
    assert exact < 1.0


def test_hessian_quantities_are_followed_too():
    data, model = digits(200), network()
    names = ("hessian_sharpness", "kappa_min")
    tracker = CurvatureTracker(model, data, quantities=names)
    for step in train(model, data, 0.3, 60):
        results = tracker.measure()
        if step % 12 == 0:
            for name, measure in zip(names, (hessian_sharpness, kappa_min), strict=True):
                exact = measure(model, data, rtol=1e-5).value
                error = abs(results[name].value / exact - 1)
                assert error <= RTOL or not results[name].converged


def test_every_quantity_has_a_result():
    data, model = digits(100), network()
    names = ("gn_sharpness", "batch_sharpness", "gni", "trace", "jacobian_norm")
    results = CurvatureTracker(model, data, quantities=names, batch=32, sampled_rtol=0.1).measure()
    assert list(results) == list(names)
    assert all(torch.isfinite(torch.tensor(r.value)) for r in results.values())


def test_a_resumed_tracker_goes_on_bit_for_bit():
    data = digits(150)
    whole, model = [], network()
    tracker = CurvatureTracker(model, data)
    for step in train(model, data, 0.3, 40):
        whole.append(tracker.measure()["gn_sharpness"])
        if step == 24:
            file = io.BytesIO()
            torch.save(tracker.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    model = network()
    resumed = CurvatureTracker(model, data)
    for step in train(model, data, 0.3, 40):
        if step == 25:
            resumed.load_state_dict(state)
        if step >= 25:
            again = resumed.measure()["gn_sharpness"]
            assert (again.value, again.products) == (whole[step].value, whole[step].products)


def test_backward_is_the_training_step_and_shares_its_forward_pass():
    data = digits(150)
    model, plain = network(), network()
    tracker = CurvatureTracker(model, data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    for _ in train(plain, data, 0.3, 10):
        optimizer.zero_grad()
        passes.clear()
        tracker.backward()
        tracker.measure()
        assert len(passes) == 1
        optimizer.step()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


def test_input_rank_is_widened_until_the_whole_space_agrees():
    data, model = digits(), network()
    tracker = CurvatureTracker(model, data, input_rank=4)
    for step in train(model, data, 0.3, 120):
        result = tracker.measure()["gn_sharpness"]
        if step % 50 == 0:
            exact = gn_sharpness(model, data, rtol=1e-5).value
            assert abs(result.value / exact - 1) <= RTOL or not result.converged
    assert tracker.state_dict()["rank"] > 4


def test_input_rank_needs_a_dense_first_layer():
    convolution = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 10, 8), nn.Flatten())
    with pytest.raises(ValueError, match=r"first layer is a free nn\.Linear"):
        CurvatureTracker(convolution, digits(50), input_rank=4)


def test_top_eigenpairs_are_warm():
    data, model = digits(150), network()
    tracker = CurvatureTracker(model, data)
    first, again = tracker.top("hessian", 3), tracker.top("hessian", 3)
    assert first.converged
    assert again.converged
    assert again.products < first.products / 2
    torch.testing.assert_close(first.value, again.value, rtol=1e-3, atol=0)


def test_recovers_after_a_value_that_is_not_finite():
    data, model = digits(100), network()
    tracker = CurvatureTracker(model, data)
    for _ in range(6):
        tracker.measure()
    good = [p.clone() for p in model.parameters()]
    with torch.no_grad():
        model[0].bias.fill_(float("nan"))
    assert not tracker.measure()["gn_sharpness"].converged
    with torch.no_grad():
        for p, g in zip(model.parameters(), good, strict=True):
            p.copy_(g)
    assert tracker.measure()["gn_sharpness"].converged
