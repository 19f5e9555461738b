"""Jacobian norms, batch sharpness, GNI, trace and spectral density against dense matrices."""

import pytest
import torch
from dense import CASES, hessian, jacobian, make

from toosure.curvature import (
    LossCurvature,
    batch_sharpness,
    gni,
    jacobian_norms,
    spectral_density,
    trace,
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [None, 3])
def test_jacobian_norms_are_exact(name, chunk):
    model, (x, _) = make(name, n=8)
    exact = torch.linalg.matrix_norm(jacobian(model, x), ord=2)
    torch.testing.assert_close(
        jacobian_norms(model, x, chunk=chunk).value, exact, rtol=1e-10, atol=0
    )


def test_jacobian_norms_of_some_parameters():
    model, (x, _) = make("cnn with BatchNorm", n=5)
    exact = torch.linalg.matrix_norm(jacobian(model, x)[:, :, -51:], ord=2)
    found = jacobian_norms(model, x, parameters=["7.*"]).value
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=0)


def test_batch_sharpness_is_the_mean_of_ratios():
    model, (x, y) = make("mlp")
    found = batch_sharpness(model, (x, y), rtol=0.0, batch=5, max_batches=12, seed=3)
    assert not found.converged
    generator = torch.Generator().manual_seed(3)
    ratios = []
    for _ in range(12):
        rows = torch.randperm(len(x), generator=generator)[:5]
        g = LossCurvature(model, (x[rows], y[rows])).gradient()[1]
        ratios.append(g @ hessian(model, x[rows], y[rows]) @ g / (g @ g))
    ratios = torch.stack(ratios)
    assert found.value == pytest.approx(ratios.mean().item(), rel=1e-9)
    assert found.error == pytest.approx((ratios.std() / 12**0.5 / ratios.mean()).item(), rel=1e-9)


def test_batch_sharpness_stops_by_its_standard_error():
    model, data = make("mlp", n=200)
    found = batch_sharpness(model, data, rtol=0.05, batch=32)
    assert found.converged
    assert found.error <= 0.05


def test_batch_sharpness_of_the_whole_batch_is_the_directional_curvature():
    model, (x, y) = make("mlp")
    found = batch_sharpness(model, (x, y), batch=len(x))
    g = LossCurvature(model, (x, y)).gradient()[1]
    exact = g @ hessian(model, x, y) @ g / (g @ g)
    assert found.value == pytest.approx(exact.item(), rel=1e-9)


def test_gni_uses_the_full_hessian_and_gradient():
    model, (x, y) = make("mlp")
    found = gni(model, (x, y), rtol=0.0, batch=5, max_batches=10, seed=1)
    full, h = LossCurvature(model, (x, y)).gradient()[1], hessian(model, x, y)
    generator = torch.Generator().manual_seed(1)
    terms = []
    for _ in range(10):
        rows = torch.randperm(len(x), generator=generator)[:5]
        g = LossCurvature(model, (x[rows], y[rows])).gradient()[1]
        terms.append(g @ h @ g / (full @ full))
    assert found.value == pytest.approx(torch.stack(terms).mean().item(), rel=1e-9)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_trace_within_four_standard_errors(name):
    model, (x, y) = make(name)
    found = trace(model, (x, y), matrix="hessian", rtol=0.05, max_vectors=2000)
    exact = hessian(model, x, y).trace().item()
    assert found.converged and isinstance(found.products, int)
    assert abs(found.value / exact - 1) < 4 * found.error


def test_spectral_density_has_the_moments_of_the_spectrum():
    model, (x, y) = make("mlp")
    h = hessian(model, x, y)
    found = spectral_density(model, (x, y), vectors=60, depth=30)
    nodes, weights = found.value.T
    assert weights.sum().item() == pytest.approx(1, rel=1e-6)
    values = torch.linalg.eigvalsh(h)
    assert nodes.max().item() == pytest.approx(values[-1].item(), rel=1e-6)
    assert nodes.min().item() == pytest.approx(values[0].item(), rel=1e-6)
    second = (weights * nodes**2).sum().item()
    assert second == pytest.approx(values.square().mean().item(), rel=0.2)
