"""Products of operator norms lie above every slope, and above dense matrices, layer by layer."""

import random

import pytest
import torch
from torch import nn

from margins.networks import NETWORKS, data, make
from toosure.margins import lipschitz
from toosure.margins.fx_graph import trace
from toosure.margins.lipschitz import convolution_norm, pair_lipschitz
from toosure.margins.robust import float64_copy


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 1, 1, 1), (2, 1, 1, 1), (1, 0, 2, 1), (1, 2, 1, 2), (3, 1, 1, 1)],
)
def test_convolution_norm_is_above_the_dense_matrix_and_near_it(stride, padding, dilation, groups):
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3, stride, padding, dilation, groups, bias=False).double()
    matrix = torch.func.jacrev(lambda v: conv(v[None])[0])(torch.zeros(4, 7, 6).double())
    exact = float(torch.linalg.matrix_norm(matrix.detach().reshape(-1, 4 * 42), 2))
    bound = convolution_norm(conv, 7, 6)
    assert exact <= bound
    if stride == 1 and dilation == 1:
        assert bound < 1.15 * exact


def random_convolution(seed):
    """A small convolution with padding of every sort, and the size of an image for it."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    groups, padding = choose.choice([1, 2]), choose.choice([1, 2, (2, 1), "same", "same"])
    kernel, dilation = (choose.randint(1, 3), choose.randint(1, 3)), choose.choice([1, 2])
    stride = 1 if padding == "same" else choose.choice([1, 2])
    conv = nn.Conv2d(2, 2 * choose.randint(1, 2), kernel, stride, padding, dilation, groups, False)
    return conv.double(), (choose.randint(4, 5), choose.randint(4, 5))


def dense_norm_of(conv, size):
    image = torch.zeros(1, conv.in_channels, *size).double()
    matrix = torch.func.jacrev(lambda v: conv(v).flatten())(image).detach().flatten(1)
    return float(torch.linalg.matrix_norm(matrix, 2))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_convolution_norm_is_above_the_dense_matrix_for_all_paddings(monkeypatch):
    cases = [random_convolution(seed) for seed in range(100)]
    exact = [dense_norm_of(*case) for case in cases]
    assert all(
        e <= convolution_norm(conv, *size) for e, (conv, size) in zip(exact, cases, strict=True)
    )
    monkeypatch.setattr(lipschitz, "padding_of", lambda conv: (0, 0))  # windows then wrap around
    caught = set()
    for norm, (conv, size) in zip(exact, cases, strict=True):
        if norm > convolution_norm(conv, *size):
            caught.add(conv.padding)
    assert "same" in caught and len(caught) > 1


@pytest.mark.parametrize("name", NETWORKS)
def test_lipschitz_products_bound_every_slope(name):
    model, shape = make(name, 11)
    x, _ = data(shape, 30, 11)
    for norm in ("linf", "l2"):
        constants = pair_lipschitz(trace(float64_copy(model)), x, norm, 3)
        jacobian = torch.func.vmap(torch.func.jacrev(lambda v: model(v[None])[0]))(x * 3).flatten(2)
        pairs = (jacobian.unsqueeze(2) - jacobian.unsqueeze(1)).norm(
            1 if norm == "linf" else 2, dim=3
        )
        assert (pairs.amax(0) <= constants + 1e-12).all()
        assert (constants.diagonal() == 0).all()


def test_dense_lipschitz_is_the_product_of_singular_values():
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 2, bias=False))
    model = model.double().requires_grad_(False)
    constants = pair_lipschitz(trace(float64_copy(model)), torch.zeros(1, 4).double(), "l2", 2)
    head = (model[2].weight[0] - model[2].weight[1]).norm()
    expected = head * torch.linalg.svdvals(model[0].weight)[0]
    torch.testing.assert_close(constants[0, 1], expected, rtol=1e-8, atol=0)
