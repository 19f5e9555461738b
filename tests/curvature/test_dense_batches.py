"""Batch sharpness of many batches at once, against one batch at a time."""

import pytest
import torch
from torch import nn

from toosure.curvature import stochastic
from toosure.curvature.products.dense_batches import batch_quotients
from toosure.curvature.products.loss_curvature import LossCurvature


def examples(n=40):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 4, (n,), generator=generator)


def mlp(activation=nn.Tanh):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 8), activation(), nn.Linear(8, 7, bias=False), activation()]
    return nn.Sequential(*layers, nn.Linear(7, 4)).double()


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.SiLU])
@pytest.mark.parametrize("loss", ["ce", "mse"])
def test_quotients_are_those_of_each_batch(activation, loss):
    model = mlp(activation)
    model[0].bias.requires_grad_(False)
    full = LossCurvature(model, examples(), loss)
    (chunk,) = full.chunks()
    with full.temporary_mode():
        found = batch_quotients(chunk, full.loss, 10)

    for batch, quotient in enumerate(found):
        small = full.subset(torch.arange(10 * batch, 10 * batch + 10))
        g = small.gradient()[1]
        exact = g @ small.apply(g[None], "hessian")[0] / (g @ g)
        torch.testing.assert_close(quotient, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rtol", [0.05, 0.0])
def test_blocks_stop_after_the_same_batch_with_the_same_mean(monkeypatch, rtol):
    monkeypatch.setattr(stochastic, "BLOCK", 7)
    model = mlp()
    slow = stochastic.batch_sharpness(model, examples(), rtol=rtol, batch=12, max_batches=45)
    full = LossCurvature(model, examples())
    generator = torch.Generator().manual_seed(0)
    fast = stochastic._many_batches(full, 12, generator, rtol, 45)
    assert fast.value == pytest.approx(slow.value, rel=1e-9)
    assert fast.error == pytest.approx(slow.error, rel=1e-6)
    assert fast.products == pytest.approx(slow.products)
    assert (fast.converged, fast.note) == (slow.converged, slow.note)


def test_shared_weights_are_left_to_single_batches():
    torch.manual_seed(0)
    shared = nn.Linear(6, 6)
    model = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(6, 4)).double()
    generator = torch.Generator().manual_seed(0)
    assert stochastic._many_batches(LossCurvature(model, examples()), 12, generator, 0, 45) is None


def test_what_is_no_chain_is_left_to_single_batches():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x):
            return self.last(x + self.first(x))

    full = LossCurvature(Residual().double(), examples())
    generator = torch.Generator().manual_seed(0)
    assert stochastic._many_batches(full, 12, generator, 0.02, 45) is None
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state())
