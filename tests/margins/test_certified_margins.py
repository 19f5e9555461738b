"""Certified margins lie below all that the network does in the ball; exact when it is affine."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from margins.networks import NETWORKS, data, make
from toosure.margins import attacked_margin, certified_margin, robust_margin, true_margin
from toosure.margins.certified import METHODS, certified_bounds
from toosure.margins.fx_graph import trace
from toosure.margins.propagation import gradient_norms, margin_functionals, propagate
from toosure.margins.relaxations import relu_lines, tanh_lines
from toosure.margins.robust import float64_copy


def in_ball(x, eps, norm, n, seed):
    """n points of the ball around each x, half of them on its border, (n, N, ...)."""
    generator = torch.Generator().manual_seed(seed)
    shift = torch.randn(n, *x.shape, generator=generator, dtype=x.dtype).flatten(2)
    if norm == "linf":
        shift = shift.sign() * torch.rand(n, 1, 1, generator=generator).round().clamp_min(0.5)
    else:
        shift = shift / shift.norm(dim=2, keepdim=True)
    return x + eps * shift.view(n, *x.shape)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    eps=st.sampled_from([1e-6, 1e-3, 0.03, 0.3, 2.0]),
    method=st.sampled_from(METHODS),
    generators=st.sampled_from([0, 16]),
)
def test_no_point_of_the_ball_is_below(name, norm, seed, eps, method, generators):
    model, shape = make(name, seed, scale=1.5)
    x, y = data(shape, 10, seed)
    points = in_ball(x, eps, norm, 32, seed).flatten(0, 1)
    with torch.no_grad():
        reached = true_margin(model(points), y.repeat(32)).view(32, 10).amin(0)
    settings = {"method": method, "generators": generators, "units": 0 if generators else 512}
    proved = certified_margin(model, x, y, eps, norm, **settings)
    assert proved.is_lower_bound
    assert (proved.values <= reached).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NETWORKS)
def test_attacked_is_never_below_certified(name, norm):
    for seed in range(3):
        model, shape = make(name, seed, scale=2.0)
        x, y = data(shape, 8, seed)
        for single in (model, model.float()):
            found = robust_margin(single, x, y, 0.1, norm, "attacked", steps=10)
            proved = robust_margin(single, x, y, 0.1, norm, "certified")
            assert (found.values >= proved.values).all()
            model.double()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_certified_is_below_the_minimum_found_by_brute_force_in_two_dimensions(norm, activation):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 8), activation(), nn.Linear(8, 8), activation(),
                          nn.Linear(8, 3)).double()  # fmt: skip
    x, y = data((2,), 4, 0)
    eps, line = 0.2, torch.linspace(-1, 1, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    if norm == "l2":
        grid = grid / grid.norm(dim=1, keepdim=True).clamp_min(1.0)
    with torch.no_grad():
        points = (x + eps * grid.unsqueeze(1)).flatten(0, 1)  # (161^2 * 4, 2)
        lowest = true_margin(model(points), y.repeat(len(grid))).view(len(grid), 4).amin(0)
    proved = certified_margin(model, x, y, eps, norm).values
    found = attacked_margin(model, x, y, eps, norm, steps=40, restarts=3).values
    assert (proved <= lowest).all()
    assert (lowest - proved).max() < 0.35 * (true_margin(model(x), y) - lowest).abs().max()
    torch.testing.assert_close(found, lowest, rtol=0, atol=2e-3)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ["affine", "affine convolution"])
def test_affine_models_are_exact(name, norm):
    model, shape = make(name, 7)
    x, y = data(shape, 6, 7)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda v: model(v[None])[0]))(x).flatten(2)
    rows = jacobian[torch.arange(6), y].unsqueeze(1) - jacobian  # (N, K, D)
    gaps = (model(x).gather(1, y[:, None]) - model(x)).detach()
    least = gaps - 0.3 * rows.detach().norm(1 if norm == "linf" else 2, dim=2)
    exact = least.scatter(1, y[:, None], torch.inf).amin(1)
    proved = certified_margin(model, x, y, 0.3, norm)
    assert proved.bound == "exact" and proved.is_upper_bound
    torch.testing.assert_close(proved.values, exact, rtol=1e-10, atol=1e-10)


def exact_margins(model, point):
    """The margin of each label at one input, in rational numbers."""
    values = [Fraction(v) for v in point.tolist()]
    for layer in model:
        if isinstance(layer, nn.ReLU):
            values = [max(v, Fraction(0)) for v in values]
            continue
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        values = [sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(bias))
                  for row, bias in rows]  # fmt: skip
    return [v - max(values[:i] + values[i + 1 :]) for i, v in enumerate(values)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("offset", [1.0, 1e6])
def test_rounding_is_outward_where_large_numbers_cancel(offset, method):
    for seed in range(8):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).double()
        x = (torch.randn(1, 8).double() + offset).repeat(3, 1)
        model[0].bias.data -= model[0].weight.detach().sum(1) * offset
        proved = certified_margin(model, x, torch.arange(3), 1e-14, method=method).values
        exact = exact_margins(model, x[0])
        assert all(Fraction(p) <= m for p, m in zip(proved.tolist(), exact, strict=True))
        assert max(float(m) - p for p, m in zip(proved.tolist(), exact, strict=True)) < 1e-7


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_attacks_stay_in_the_ball_where_inputs_are_large(norm):
    seen = []

    class Recorded(nn.Linear):
        def forward(self, x):
            seen.append(x.detach())
            return super().forward(x)

    model, x = Recorded(4, 3).double(), data((4,), 64, 0)[0] + 1e6
    attacked_margin(model, x, torch.arange(64) % 3, 1e-8, norm, steps=3)
    shift = seen[-1] - x  # the difference of near numbers is exact
    assert shift.abs().max() > 0
    assert (shift.norm(torch.inf if norm == "linf" else 2, dim=1) <= 1e-8).all()


def test_methods_are_ordered_on_a_network_where_they_should_be():
    model, shape = make("tanh", 1)
    x, y = data(shape, 20, 1)
    values = {m: certified_margin(model, x, y, 0.05, method=m).values for m in METHODS}
    for method in METHODS:
        assert (values["best"] >= values[method]).all()
    assert values["linear"].mean() > values["interval"].mean()
    assert values["gradient"].mean() > values["lipschitz"].mean()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ["tanh", "relu", "residual", "reader", "grouped"])
def test_generators_are_exact_where_nothing_bends(name, norm):
    model, shape = make(name, 6)
    x, y = data(shape, 5, 6)
    eps = 1e-7
    clean = true_margin(model(x), y).detach()
    first = robust_margin(model, x, y, eps, norm, "linearised").values
    drop = (clean - first).clamp_min(1e-12)
    with_generators = certified_margin(model, x, y, eps, norm, units=0, generators=16).values
    plain = certified_margin(model, x, y, eps, norm, units=0).values
    assert ((clean - with_generators) / drop).max() < 1.01  # to first order, nothing is lost
    assert (with_generators >= plain).all()


def test_a_broken_relaxation_is_caught(monkeypatch):
    from toosure.margins import interval_tape

    def broken(lower, upper):  # the chord taken as the line below: wrong where tanh bends upward
        lines = tanh_lines(lower, upper)
        slope = (upper.tanh() - lower.tanh()) / (upper - lower)
        return type(lines)(slope, lower.tanh() - slope * lower, slope, lower.tanh() - slope * lower)

    monkeypatch.setattr(interval_tape, "tanh_lines", broken)
    caught = 0
    for seed in range(20):
        model, shape = make("tanh", seed, scale=1.5)
        x, y = data(shape, 5, seed)
        reached = attacked_margin(model, x, y, 0.5, steps=10).values
        caught += bool((certified_margin(model, x, y, 0.5, method="linear").values > reached).any())
    assert caught > 0


@settings(max_examples=300, deadline=None)
@given(st.floats(-40, 40), st.floats(0, 40), st.sampled_from([1.0, 1e-3, 1e-7, 1e-12]))
def test_lines_enclose_the_activations(lower, width, scale):
    low = torch.tensor(lower * scale, dtype=torch.float64)
    high = low + width * scale
    h = low + (high - low) * torch.linspace(0, 1, 400, dtype=torch.float64)
    h = h.clamp(low, high)
    for lines, values in ((tanh_lines(low, high), h.tanh()), (relu_lines(low, high), h.relu())):
        assert (lines.low_slope * h + lines.low <= values).all()
        assert (lines.high_slope * h + lines.high >= values).all()


@pytest.mark.parametrize("name", [n for n in NETWORKS if "affine" not in n])
def test_gradients_in_the_ball_stay_under_their_bound(name):
    model, shape = make(name, 5, scale=1.5)
    x, y = data(shape, 4, 5)
    for norm in ("linf", "l2"):
        bound = certified_bounds(model, x, y, 0.2, norm).lipschitz
        for points in in_ball(x, 0.2, norm, 10, 5):
            points.requires_grad_()
            (slope,) = torch.autograd.grad(true_margin(model(points), y).sum(), points)
            assert (slope.flatten(1).norm(1 if norm == "linf" else 2, dim=1) <= bound).all()


def test_gradient_bound_is_exact_on_a_single_point():
    model, shape = make("tanh", 2)
    x, y = data(shape, 4, 2)
    tape, logits = propagate(trace(float64_copy(model)), x, 0.0, "l2", 512)
    bound = gradient_norms(tape, logits, margin_functionals(y, 3)).amax(0)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda v: model(v[None])[0]))(x)
    exact = (jacobian[torch.arange(4), y].unsqueeze(1) - jacobian).norm(dim=2).amax(1)
    torch.testing.assert_close(bound.detach(), exact.detach(), rtol=1e-9, atol=0)


def test_unknown_ops_and_wrong_arguments_say_so():
    x, y = torch.randn(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="no certified bound is known for GELU"):
        certified_margin(nn.Sequential(nn.Linear(3, 3), nn.GELU()), x, y, 0.1)

    class Square(nn.Module):
        def forward(self, x):
            return x * x

    with pytest.raises(ValueError, match="no certified bound is known for mul"):
        certified_margin(Square(), x, y, 0.1)

    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ValueError, match=r"torch\.fx can trace"):
        certified_margin(Branch(), x, y, 0.1)
    with pytest.raises(ValueError, match="eps must be a finite radius"):
        certified_margin(nn.Linear(3, 3), x, y, -0.1)
    with pytest.raises(ValueError, match="norm must be one of"):
        robust_margin(nn.Linear(3, 3), x, y, 0.1, "l1")
    with pytest.raises(ValueError, match="kind must be one of"):
        robust_margin(nn.Linear(3, 3), x, y, 0.1, kind="guessed")


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    model[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for kind in ("attacked", "linearised", "certified"):
        robust_margin(model, torch.randn(6, 3), torch.tensor([0, 1] * 3), 0.1, kind=kind)
    assert model.training and not model[1].training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_chunks_do_not_change_the_numbers():
    model, shape = make("residual", 4)
    x, y = data(shape, 7, 4)
    whole = certified_margin(model, x, y, 0.05, chunk=100).values
    torch.testing.assert_close(certified_margin(model, x, y, 0.05, chunk=2).values, whole)
