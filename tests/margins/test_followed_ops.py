"""Ops that are easily followed wrongly: overwritten values, constants, hooks, attributes."""

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from margins.networks import data
from toosure.margins import attacked_margin, certified_margin, true_margin
from toosure.margins.certified import METHODS
from toosure.margins.fx_graph import trace


class Block(nn.Module):
    """A pre-activation block whose ReLU overwrites what the shortcut reads."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.conv = nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.relu(x)) + x


def preactivated() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), Block(), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 3),
    ).double().eval()  # fmt: skip


class Flat(nn.Module):
    """A dense network around a forward pass given as a function."""

    def __init__(self, forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.wide, self.first = nn.Linear(9, 6), nn.Linear(4, 3)
        self.still = nn.Parameter(-5 * torch.ones(1, 3))
        self.way = forward
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)


def counted(net, x):
    size = x.size(0)
    same = size
    size *= 2
    return net.first(x.view(same, -1))


def aliased(net, x):
    h = net.a(x)
    out = h
    out += net.b(torch.tanh(h))
    return net.head(torch.relu(h))


def overwritten_twice(net, x):
    h = net.a(x)
    h *= -1.5
    h /= 0.7
    h -= 0.1
    F.relu(h, inplace=True)
    return net.head(net.b(h) + h)


def beside_a_constant(net, x):
    x = torch.cat([net.a(x), net.still.expand(x.size(0), -1)], 1)
    return net.head(torch.relu(net.wide(torch.tanh(x))))


def odd_constants(net, x):
    return net.first((x - 0.45) / 0.2)


WAYS = [counted, aliased, overwritten_twice, beside_a_constant, odd_constants]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("generators", [0, 16])
@pytest.mark.parametrize("way", WAYS)
def test_proofs_stay_below_attacks(way, method, generators):
    model = Flat(way)
    x, y = data((4,), 20, 0)
    units = 0 if generators else 512
    proved = certified_margin(model, x, y, 0.3, method=method, units=units, generators=generators)
    assert (proved.values <= attacked_margin(model, x, y, 0.3).values).all()
    at_once = certified_margin(model, x, y, 1e-9, method=method, generators=generators).values
    here = true_margin(model(x), y).detach()
    torch.testing.assert_close(at_once, here, rtol=0, atol=1e-6)  # and it is this network's bound


@pytest.mark.parametrize("method", METHODS)
def test_overwritten_shortcuts_are_followed(method):
    model = preactivated()
    x, y = data((1, 6, 6), 40, 1)
    proved = certified_margin(model, x, y, 0.05, method=method)
    assert (proved.values <= attacked_margin(model, x, y, 0.05, steps=5).values).all()
    with torch.no_grad():
        torch.testing.assert_close(fx.Interpreter(trace(model)).run(x), preactivated()(x))


def test_a_view_of_overwritten_memory_is_refused():
    def seen_through_a_view(net, x):
        h = net.a(x)
        rows = h.view(x.size(0), 6)
        h += 1.0
        return net.head(rows)

    def part_overwritten(net, x):
        h = net.a(x)
        part = h[:, :3]
        part += 1.0
        return net.head(h)

    def constant_overwritten(net, x):
        still = net.still.expand(x.size(0), -1).clone()
        still += x[:, :3]
        return still

    x, y = data((4,), 3, 0)
    for way in (seen_through_a_view, part_overwritten):
        with pytest.raises(ValueError, match="reads through a view"):
            certified_margin(Flat(way), x, y, 0.1)
    with pytest.raises(ValueError, match="writes into a constant"):
        certified_margin(Flat(constant_overwritten), x, y, 0.1)


@pytest.mark.parametrize(
    ("way", "what"),
    [
        (lambda net, x: net.first(x) + (net.first.weight @ x.T).T, r"reading \.T"),
        (lambda net, x: net.first(x) + net.first(x.data), r"reading \.data"),
    ],
)
def test_attributes_that_hold_values_are_refused(way, what):
    with pytest.raises(ValueError, match=what):
        certified_margin(Flat(way), *data((4,), 3, 0), 0.1)


def test_sizes_and_kinds_may_be_read():
    def way(net, x):
        return net.first(x.view(x.shape[0], -1).flatten(x.ndim - 1)) * torch.ones(
            3, dtype=x.dtype, device=x.device
        )

    model, (x, y) = Flat(way), data((4,), 3, 0)
    assert certified_margin(model, x, y, 0.1).bound == "exact"


@pytest.mark.parametrize("place", ["before", "after"])
def test_hooks_are_refused(place):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    if place == "after":
        model[0].register_forward_hook(lambda module, inputs, output: 3 * output)
    else:
        model[0].register_forward_pre_hook(lambda module, inputs: (3 * inputs[0],))
    with pytest.raises(ValueError, match="module '0' has one"):
        certified_margin(model, *data((4,), 3, 0), 0.1)


def test_averages_over_a_negative_number_are_refused():
    class Named(nn.Module):
        def forward(self, x):
            return F.avg_pool2d(x, 2, divisor_override=-2)

    x, y = data((1, 4, 4), 3, 0)
    for pool in (nn.AvgPool2d(2, divisor_override=-2), Named()):
        with pytest.raises(ValueError, match="no certified bound is known for"):
            certified_margin(nn.Sequential(pool, nn.Flatten(), nn.Linear(4, 3)), x, y, 0.1)
    half = nn.Sequential(nn.AvgPool2d(2, divisor_override=2), nn.Flatten(), nn.Linear(4, 3))
    proved = certified_margin(half, x, y, 0.1)
    found = attacked_margin(half, x, y, 0.1)
    torch.testing.assert_close(proved.values, found.values)
