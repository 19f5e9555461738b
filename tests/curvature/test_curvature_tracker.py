"""The tracker along real training: right at every step, or it says that it is not."""

import gc
import io
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from toosure.curvature import (
    CurvatureTracker,
    LossCurvature,
    gn_sharpness,
    hessian_sharpness,
    kappa_min,
    top_eigenpairs,
)
from toosure.curvature.eigen.graph_basis import GraphBasis
from toosure.curvature.operators import GaussNewton
from toosure.curvature.products.cuda_graphs import CapturedGraph, GraphCache, no_garbage_collection
from toosure.curvature.products.input_subspace import InputSubspace

RTOL = 1e-3


class Twice(nn.Module):
    """A layer that sees the inputs and then its own outputs."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.layer(self.layer(x).tanh()))


@pytest.fixture(params=[False, True], ids=["eager", "graphs"])
def copies_to_host(request, monkeypatch):
    """None for an eager basis; for one as in CUDA graphs, a list of its copies to the host."""
    if not request.param:
        return None
    monkeypatch.setattr(GaussNewton, "uses_graphs", True)
    copies = []
    to_host = GraphBasis._to_host

    def counting(self, name, *rest):
        copies.append(name)
        return to_host(self, name, *rest)

    monkeypatch.setattr(GraphBasis, "_to_host", counting)
    return copies


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
def test_right_or_says_so(lr, batch, copies_to_host):
    """From the start past the edge of stability; every tenth step against a tight reference."""
    data, model = digits(), network()
    tracker = CurvatureTracker(model, data)
    products, largest = [], 0.0
    for step in train(model, data, lr, 150, batch):
        result = tracker.measure()["gn_sharpness"]
        products.append(result.products)
        if step % 10 == 0 or step < 10:
            exact = gn_sharpness(model, data, rtol=1e-5).value
            error = abs(result.value / exact - 1)
            assert error <= RTOL or not result.converged, (step, result, exact)
            largest = max(largest, exact)
    if lr == 0.6:
        assert largest > 2 / lr  # the run did reach the edge of stability
    if copies_to_host is None:
        assert sum(products) / len(products) < 8  # a cold solve takes 8 to 15
    else:
        assert len(copies_to_host) / len(products) < 3  # one at a time it would be 8 to 17


@pytest.mark.parametrize("seed", range(3))
def test_several_seeds_and_the_fall_of_late_training(seed, copies_to_host):
    """A run to interpolation, where the sharpness falls by orders of magnitude."""
    data, model = digits(80), network(seed)
    tracker = CurvatureTracker(model, data)
    for step in train(model, data, 1.0, 600):
        if step % 3 == 0:
            result = tracker.measure()["gn_sharpness"]
        if step % 30 == 0:
            exact = gn_sharpness(model, data, rtol=1e-5).value
            assert abs(result.value / exact - 1) <= RTOL or not result.converged
    assert exact < 0.1


def test_hessian_quantities_are_followed_too():
    data, model = digits(200), network()
    names = ("hessian_sharpness", "kappa_min")
    tracker = CurvatureTracker(model, data, quantities=names)
    for step in train(model, data, 0.3, 40):
        results = tracker.measure()
        if step % 8 == 0:
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


def wide_digits(n=900, features=1000):
    """Digits turned into a wide space, with a little in every direction."""
    x, y = digits(n)
    generator = torch.Generator().manual_seed(1)
    turn = torch.randn(64, features, generator=generator) / 8
    return x @ turn + 0.1 * torch.randn(n, features, generator=generator), y


def wide_network(*first):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [*first, nn.Linear(1000, 24), nn.Tanh(), nn.Linear(24, 10)]
        return nn.Sequential(*layers)


@pytest.mark.parametrize("batch", [None, 64], ids=["gd", "sgd"])
def test_wide_inputs_are_searched_in_few_directions_and_judged_in_all(batch, copies_to_host):
    data, model = wide_digits(), wide_network()
    tracker = CurvatureTracker(model, data)
    assert tracker.state_dict()["rank"] == 200
    for step in train(model, data, 0.3, 60, batch):
        result = tracker.measure()["gn_sharpness"]
        if step % 6 == 0:
            exact = gn_sharpness(model, data, rtol=1e-5).value
            assert result.converged
            assert abs(result.value / exact - 1) <= min(RTOL, result.error), (step, result)


def test_too_few_directions_are_noticed_at_once():
    data, model = digits(), network()
    tracker = CurvatureTracker(model, data, input_rank=4)
    notes = []
    for step in train(model, data, 0.3, 40):
        result = tracker.measure()["gn_sharpness"]
        notes.append(result.note)
        exact = gn_sharpness(model, data, rtol=1e-5).value
        assert abs(result.value / exact - 1) <= RTOL, (step, result)
    assert any("input rank 4 missed" in note for note in notes)
    assert tracker.state_dict()["rank"] in (16, 32, None)  # None: all 64 features


def test_what_lies_outside_is_estimated_from_a_sketch():
    data, model = wide_digits(), wide_network()
    curvature = LossCurvature(model, data)
    space = InputSubspace(curvature, 100)
    for seed in range(20):
        u = torch.randn(900, 10, generator=torch.Generator().manual_seed(seed))
        (inside,), (outside,) = space.pull_inside_and_outside(u[None])
        whole = curvature.pull(u[None])[0]
        rest = whole - space.lift(inside[None])[0]
        assert 0.7 < float(outside.norm() / rest.norm()) < 1.4
        torch.testing.assert_close(
            space.lift(inside[None])[0] @ rest, torch.tensor(0.0), atol=1e-5, rtol=0
        )


def test_a_larger_eigenvalue_outside_the_directions_is_found():
    """Two groups of samples without a common feature: no residual of one shows the other."""
    torch.manual_seed(0)
    x, y = torch.zeros(60, 40), torch.arange(60) % 3
    x[:40, :10] = 6 * torch.eye(10).repeat(4, 1)  # the inputs' leading directions,
    x[40:, 10:] = torch.randn(20, 30)
    model = nn.Linear(40, 3, bias=False)
    with torch.no_grad():
        model.weight.zero_()
        model.weight[0, :10] = 1.5  # but surely classified: little curvature
    tracker = CurvatureTracker(model, (x, y), input_rank=10)
    result = tracker.measure()["gn_sharpness"]
    exact = gn_sharpness(model, (x, y), rtol=1e-6).value
    assert abs(result.value / exact - 1) <= RTOL, (result, exact)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 10, 8), nn.Flatten()), "free nn.L"),
        (nn.Sequential(nn.BatchNorm1d(64, affine=False), nn.Linear(64, 10)), "fixed inputs"),
        (Twice(), "used once"),
    ],
    ids=["convolution", "moving inputs", "used twice"],
)
def test_input_rank_needs_a_dense_first_layer(model, why):
    with pytest.raises(ValueError, match=why):
        CurvatureTracker(model, digits(50), input_rank=4)
    assert CurvatureTracker(model, digits(50)).measure()["gn_sharpness"].converged


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


@pytest.mark.parametrize("change", ["data", "set", "step"])
def test_weights_changed_in_any_way_are_seen(change):
    data, model = digits(100), network()
    tracker = CurvatureTracker(model, data)
    for _ in range(6):
        tracker.measure()
    with torch.no_grad():
        for p in model.parameters():
            if change == "data":
                p.data.mul_(1.5)
            elif change == "set":
                p.data = 1.5 * p.data
            else:
                p.mul_(1.5)
    result = tracker.measure()["gn_sharpness"]
    assert abs(result.value / gn_sharpness(model, data).value - 1) <= 2 * RTOL


def test_wide_inputs_that_are_not_finite_have_a_status():
    (x, y), model = wide_digits(), wide_network()
    x[3, 5] = float("nan")
    assert not CurvatureTracker(model, (x, y)).measure()["gn_sharpness"].converged


def test_one_parameter():
    x, y = torch.randn(20, 1), torch.arange(20) % 2
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ConstantPad1d((0, 1), 0.0))
    tracker = CurvatureTracker(model, (x, y))
    for _ in range(12):
        assert tracker.measure()["gn_sharpness"].converged


@pytest.mark.parametrize("seed", range(3))
def test_close_eigenvalues_along_training(seed, copies_to_host):
    """Logistic regression, whose leading eigenvalues come as near as half a percent."""
    (x, y), lr = digits(120), 0.2
    torch.manual_seed(seed + 3)
    model = nn.Linear(64, 10)
    tracker = CurvatureTracker(model, (x, y))
    for step in train(model, (x, y), lr, 40):
        result = tracker.measure()["gn_sharpness"]
        exact = top_eigenpairs(model, (x, y), 3, rtol=1e-5).value[0]
        assert abs(result.value / exact - 1) <= RTOL or not result.converged, (step, result)


class RecordedCalls(GraphCache):
    """Stands in for CUDA graphs: runs what was recorded again, as it was bound then."""

    def __init__(self):
        super().__init__(enabled=True)
        self.names = []

    def _run_eagerly(self, function, arguments):
        with self._nested():
            return function(*arguments)

    def _capture(self, function, arguments):
        places = tuple(a.clone() for a in arguments)
        output = function(*places)

        def replay():
            fresh = function(*places)
            if isinstance(output, tuple):
                for old, new in zip(output, fresh, strict=True):
                    old.copy_(new)
            elif torch.is_tensor(output):
                output.copy_(fresh)
            else:  # the forward pass: what a graph would refresh in place
                vars(output).update(vars(fresh))

        return CapturedGraph(SimpleNamespace(replay=replay), places, output)

    def _replay(self, name, function, *arguments):
        self.names.append(name)
        return super()._replay(name, function, *arguments)


def test_garbage_is_collected_again_after_a_capture_that_failed():
    collecting = [gc.isenabled()]

    def fail():
        with no_garbage_collection():
            collecting.append(gc.isenabled())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [*collecting, gc.isenabled()] == [True, False, True]


@pytest.mark.parametrize("batch", [None, 64], ids=["gd", "sgd"])
def test_what_a_graph_records_depends_on_its_arguments(batch, monkeypatch):
    """Nothing the host knew at the first call may live on in the later ones."""
    monkeypatch.setattr(GaussNewton, "uses_graphs", True)
    data = wide_digits()
    values = []
    recorded = RecordedCalls()
    for with_graphs in (False, True):
        model = wide_network()
        tracker = CurvatureTracker(model, data)
        if with_graphs:
            tracker.curvature.graphs = recorded
        results = []
        for _ in train(model, data, 0.3, 16, batch):
            results.append(tracker.measure()["gn_sharpness"])
        values.append(torch.tensor([(r.value, r.products) for r in results]))
    torch.testing.assert_close(*values, rtol=1e-6, atol=0)
    assert {"forward", "open", "round"} <= {name.split()[0] for name in recorded.names}
    assert any(name.startswith("round 2 of") for name in recorded.names)
