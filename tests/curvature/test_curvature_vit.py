"""The vision transformer's curvature: with a kernel that has second derivatives, and exact."""

import pytest
import torch
from dense import gauss_newton, hessian, jacobian, softmax_hessian
from torch import nn
from torch.backends.cuda import flash_sdp_enabled, math_sdp_enabled, mem_efficient_sdp_enabled

from toosure.curvature import (
    CurvatureTracker,
    LossCurvature,
    gn_sharpness,
    hessian_sharpness,
    jacobian_norms,
    kappa_min,
)
from toosure.models import resnet18, vit, wrn
from toosure.models.vit import Attention

QUANTITIES = ("gn_sharpness", "hessian_sharpness", "kappa_min", "jacobian_norm", "batch_sharpness")


@pytest.fixture(scope="module")
def tiny():
    """A transformer of 239 parameters away from its start, where attention is not yet flat."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = vit((1, 4, 4), 3, patch=2, width=4, depth=1, heads=2).double()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.3 * torch.randn_like(p))
        x, y = torch.randn(12, 1, 4, 4).double(), torch.randint(0, 3, (12,))
    return model, (x, y)


def test_eigenvalues_equal_the_dense_ones(tiny):
    model, (x, y) = tiny
    g = torch.linalg.eigvalsh(gauss_newton(model, x, softmax_hessian(model, x)))
    h = torch.linalg.eigvalsh(hessian(model, x, y))
    assert abs(h[-1] / g[-1] - 1) > 0.1  # the two are told apart
    for measure, exact in ((gn_sharpness, g[-1]), (hessian_sharpness, h[-1]), (kappa_min, h[0])):
        result = measure(model, (x, y), rtol=1e-9)
        assert result.converged
        assert result.value == pytest.approx(exact.item(), rel=1e-8)


def test_products_equal_the_dense_matrices(tiny):
    model, (x, y) = tiny
    curvature = LossCurvature(model, (x, y), chunk=5)
    v = torch.randn(3, curvature.size).double()
    g, h = gauss_newton(model, x, softmax_hessian(model, x)), hessian(model, x, y)
    torch.testing.assert_close(curvature.apply(v), v @ g, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(curvature.apply(v, "hessian"), v @ h, rtol=1e-10, atol=1e-12)


def test_jacobian_norms_equal_the_dense_ones(tiny):
    model, (x, _) = tiny
    exact = torch.linalg.matrix_norm(jacobian(model, x), ord=2)
    torch.testing.assert_close(jacobian_norms(model, x).value, exact, rtol=1e-10, atol=0)


class Kernels:
    """Note which kernels attention may choose from, whenever it is called."""

    def __init__(self, model: nn.Module) -> None:
        self.seen: set[tuple[bool, ...]] = set()
        for layer in model.modules():
            if isinstance(layer, Attention):
                layer.register_forward_pre_hook(self.note)

    def note(self, *_) -> None:
        enabled = (flash_sdp_enabled(), mem_efficient_sdp_enabled(), math_sdp_enabled())
        self.seen.add(enabled)


def test_fused_kernels_train_and_the_plain_one_measures():
    model = vit((1, 8, 8), 3, width=8, depth=2, heads=2)
    x, y = torch.randn(6, 1, 8, 8), torch.arange(6) % 3
    kernels = Kernels(model)
    nn.functional.cross_entropy(model(x), y).backward()
    assert kernels.seen == {(True, True, True)}
    kernels.seen.clear()
    CurvatureTracker(model, (x, y), quantities=QUANTITIES).measure()
    assert kernels.seen == {(False, False, True)}
    kernels.seen.clear()
    model(x)
    assert kernels.seen == {(True, True, True)}


@pytest.mark.parametrize("factory", [resnet18, wrn], ids=["resnet18", "wrn"])
def test_residual_networks_equal_the_dense_matrices(factory):
    """Projections and pre-activation; few of the parameters, so that it stays small."""
    settings = {"width": 1} if factory is resnet18 else {"depth": 10, "width": 1}
    model = factory((1, 4, 4), 3, **settings).double()
    x, y = torch.randn(8, 1, 4, 4).double(), torch.arange(8) % 3
    model(x)  # running statistics of the data
    last = (
        ["layer4.0.bn2.*", "head.*"]
        if factory is resnet18
        else ["layer3.0.bn1.*", "bn.*", "head.*"]
    )
    curvature = LossCurvature(model, (x, y), parameters=last)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in curvature.names)
    v = torch.randn(2, curvature.size).double()
    g, h = gauss_newton(model, x, softmax_hessian(model, x)), hessian(model, x, y)
    torch.testing.assert_close(curvature.apply(v), v @ g, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(curvature.apply(v, "hessian"), v @ h, rtol=1e-9, atol=1e-11)
