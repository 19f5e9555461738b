"""On a GPU: the CPU's answers, replayed passes, no waiting for the device inside a product."""

import gc

import pytest
import torch
from dense import CASES, make
from torch import nn

from toosure.curvature import CurvatureTracker, LossCurvature, gn_sharpness, jacobian_norms
from toosure.curvature.products.cuda_graphs import GraphCache

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def on_gpu(name):
    model, (x, y) = make(name)
    return model.cuda(), (x.cuda(), y.cuda())


@pytest.mark.parametrize("name", CASES)
def test_products_equal_those_on_the_cpu(name):
    model, data = make(name)
    v = torch.randn(2, LossCurvature(model, data).size, dtype=torch.float64)
    expected = [LossCurvature(model, data).apply(v, m) for m in ("gn", "hessian")]
    norms = jacobian_norms(model, data[0]).value
    model, data = on_gpu(name)
    curvature = LossCurvature(model, data)
    found = [curvature.apply(v.cuda(), m).cpu() for m in ("gn", "hessian")]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(jacobian_norms(model, data[0]).value.cpu(), norms)


def test_no_waiting_inside_a_product():
    model, data = on_gpu("mlp")
    curvature = LossCurvature(model, data)
    v = torch.randn(2, curvature.size, dtype=torch.float64, device="cuda")
    for matrix in ("gn", "hessian"):
        curvature.apply(v, matrix)
        torch.cuda.set_sync_debug_mode("error")
        try:
            curvature.apply(v, matrix)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_replayed_products_follow_the_parameters():
    model, data = on_gpu("mlp")
    plain, replayed = LossCurvature(model, data), LossCurvature(model, data, replay=True)
    for seed in range(3):
        v = torch.randn(2, plain.size, generator=torch.Generator().manual_seed(seed)).double()
        for matrix in ("gn", "hessian"):
            expected = plain.apply(v.cuda(), matrix)
            torch.testing.assert_close(replayed.apply(v.cuda(), matrix), expected)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)


@pytest.mark.parametrize("rank", [None, 8])
def test_replayed_passes_follow_training(rank):
    torch.manual_seed(0)
    layers = [nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).double().cuda()
    x, y = torch.randn(50, 12).double().cuda(), torch.randint(0, 4, (50,)).cuda()
    tracker = CurvatureTracker(model, (x, y), replay=True, input_rank=rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(60):
        result = tracker.measure()["gn_sharpness"]
        exact = gn_sharpness(model, (x, y), rtol=1e-8).value
        assert abs(result.value / exact - 1) <= 1e-3 or not result.converged
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_no_garbage_is_collected_inside_a_capture():
    """A graph of a run that is over, freed there, would end it with an error."""
    collecting = []
    graphs = GraphCache(enabled=True)
    x = torch.ones(3, device="cuda")

    def double(x):
        collecting.append(gc.isenabled())
        return 2 * x

    assert [graphs("double", double, k * x).tolist() for k in (1, 2)] == [[2.0] * 3, [4.0] * 3]
    assert collecting == [True, False] and gc.isenabled()
