"""Products and eigenvalues against dense matrices, for every kind of network."""

import pytest
import torch
import torch.nn.functional as F
from dense import CASES, gauss_newton, hessian, make, softmax_hessian
from torch import nn

from toosure.curvature import (
    MSE,
    LossCurvature,
    gn_sharpness,
    hessian_sharpness,
    kappa_min,
    top_eigenpairs,
)
from toosure.curvature.products.input_subspace import InputSubspace


def block(curvature: LossCurvature, k: int = 3) -> torch.Tensor:
    return torch.randn(k, curvature.size, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [None, 7], ids=["one chunk", "chunks of 7"])
def test_products_equal_the_dense_matrices(name, chunk):
    model, (x, y) = make(name)
    curvature = LossCurvature(model, (x, y), chunk=chunk)
    vectors = block(curvature)
    g, h = gauss_newton(model, x, softmax_hessian(model, x)), hessian(model, x, y)
    torch.testing.assert_close(curvature.apply(vectors), vectors @ g, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        curvature.apply(vectors, "fisher"), vectors @ g, rtol=1e-10, atol=1e-12
    )
    torch.testing.assert_close(
        curvature.apply(vectors, "hessian"), vectors @ h, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", CASES)
def test_extreme_eigenvalues_equal_the_dense_ones(name):
    model, (x, y) = make(name)
    g = torch.linalg.eigvalsh(gauss_newton(model, x, softmax_hessian(model, x)))
    h = torch.linalg.eigvalsh(hessian(model, x, y))
    for measure, exact in ((gn_sharpness, g[-1]), (hessian_sharpness, h[-1]), (kappa_min, h[0])):
        result = measure(model, (x, y), rtol=1e-9)
        assert result.converged
        assert result.value == pytest.approx(exact.item(), rel=1e-8)
        assert result.error >= abs(result.value / exact.item() - 1) - 1e-12


@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_several_eigenpairs(which):
    model, (x, y) = make("cnn with BatchNorm")
    values, vectors = torch.linalg.eigh(hessian(model, x, y))
    order = range(-1, -6, -1) if which == "largest" else range(5)
    found = top_eigenpairs(model, (x, y), k=5, rtol=1e-9, matrix="hessian", which=which)
    assert found.converged
    torch.testing.assert_close(found.value, values[list(order)], rtol=1e-8, atol=1e-10)
    overlap = (found.vectors @ vectors[:, list(order)]).abs().diagonal()
    torch.testing.assert_close(overlap, torch.ones(5).double(), rtol=1e-4, atol=0)


def test_more_pairs_than_the_matrix_has_rank():
    model, (x, y) = make("mlp", n=2)
    g = gauss_newton(model, x, softmax_hessian(model, x))
    found = top_eigenpairs(model, (x, y), k=6, rtol=1e-6)
    exact = torch.linalg.eigvalsh(g).flip(0)[:6]
    torch.testing.assert_close(found.value, exact, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("scale", "factor"), [("mean", 2 / 3), ("sum", 2.0), ("half", 1.0)])
def test_mse_in_its_three_conventions(scale, factor):
    model, (x, y) = make("mlp")
    curvature = LossCurvature(model, (x, y), MSE(scale))
    vectors = block(curvature)
    g = gauss_newton(model, x, (factor * torch.eye(3).double()).expand(len(x), 3, 3))

    def loss(logits, labels):
        squares = (logits - F.one_hot(labels, 3)).square().sum(-1)
        return factor / 2 * squares.mean()

    torch.testing.assert_close(curvature.apply(vectors), vectors @ g, rtol=1e-10, atol=1e-12)
    h = vectors @ hessian(model, x, y, loss)
    torch.testing.assert_close(curvature.apply(vectors, "hessian"), h, rtol=1e-10, atol=1e-12)


def brier(logits, labels):
    return (logits.softmax(-1) - F.one_hot(labels, 3)).square().sum(-1).mean()


SMOOTHED = nn.CrossEntropyLoss(label_smoothing=0.1)
SUMMED = nn.CrossEntropyLoss(reduction="sum")


@pytest.mark.parametrize("loss", [SMOOTHED, SUMMED, brier], ids=["smoothed", "summed", "brier"])
def test_a_users_loss_on_logits(loss):
    model, (x, y) = make("mlp")
    curvature = LossCurvature(model, (x, y), loss, chunk=6)
    vectors = block(curvature)
    h = vectors @ hessian(model, x, y, loss)
    if loss is SUMMED:  # ours is the mean over samples whatever the loss
        h = h / len(x)
    torch.testing.assert_close(curvature.apply(vectors, "hessian"), h, rtol=1e-10, atol=1e-12)
    blocks = []
    for i in range(len(x)):
        one = lambda z, i=i: loss(z[None], y[i : i + 1])  # noqa: E731
        blocks.append(torch.autograd.functional.hessian(one, model(x[i]).detach()))
    g = gauss_newton(model, x, torch.stack(blocks))
    torch.testing.assert_close(curvature.apply(vectors), vectors @ g, rtol=1e-10, atol=1e-12)


def test_torchs_cross_entropy_is_ours():
    model, data = make("mlp")
    ours, theirs = (gn_sharpness(model, data, loss).value for loss in ("ce", nn.CrossEntropyLoss()))
    assert ours == theirs


def test_named_and_frozen_parameters():
    model, (x, y) = make("mlp")
    whole = gauss_newton(model, x, softmax_hessian(model, x))
    named = LossCurvature(model, (x, y), parameters=["2.*"])
    assert named.names == ["2.weight", "2.bias"]
    sub = whole[-named.size :, -named.size :]
    vectors = block(named)
    torch.testing.assert_close(named.apply(vectors), vectors @ sub, rtol=1e-10, atol=1e-12)
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    frozen = LossCurvature(model, (x, y))
    assert frozen.names == ["2.bias"]
    torch.testing.assert_close(frozen.apply(block(frozen)), block(frozen) @ sub[-3:, -3:])


def test_gradient_and_loss():
    model, (x, y) = make("attention")
    value, gradient = LossCurvature(model, (x, y), chunk=6).gradient()
    loss = F.cross_entropy(model.eval()(x), y)
    exact = torch.autograd.grad(loss, list(model.parameters()))
    assert value.item() == pytest.approx(loss.item(), rel=1e-12)
    torch.testing.assert_close(gradient, torch.cat([g.reshape(-1) for g in exact]))


def test_kappa_min_along_a_path():
    model, (x, y) = make("mlp")
    curvature = LossCurvature(model, (x, y))
    g = curvature.gradient()[1]
    step = 0.5 * g / g.norm()
    path = kappa_min(model, (x, y), rtol=1e-7, perturbation=step, points=3)
    before = [p.clone() for p in model.parameters()]
    exact = []
    for share in (0.0, 0.5, 1.0):
        with torch.no_grad():
            for p, b, d in zip(model.parameters(), before, curvature.split(step), strict=True):
                p.copy_(b + share * d)
        exact.append(torch.linalg.eigvalsh(hessian(model, x, y))[0])
    torch.testing.assert_close(path.value, torch.stack(exact), rtol=1e-6, atol=0)


def test_half_precision_models_are_computed_in_float32():
    model, (x, y) = make("cnn with BatchNorm")
    exact = gn_sharpness(model.bfloat16().double(), (x.bfloat16().double(), y), rtol=1e-6)
    half = gn_sharpness(model.bfloat16(), (x.bfloat16(), y), rtol=1e-5)
    assert half.value == pytest.approx(exact.value, rel=1e-4)
    assert next(model.parameters()).dtype == torch.bfloat16


def test_error_estimates_cover_the_truth_in_99_of_100_cases():
    """Cold solves at a loose tolerance over many small problems, in float64."""
    short = []
    for seed in range(100):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(2)
        x, y = torch.randn(30, 6).double(), torch.randint(0, 4, (30,))
        exact = gn_sharpness(model, (x, y), rtol=1e-11).value
        rough = gn_sharpness(model, (x, y), rtol=1e-2, seed=seed)
        short.append(rough.error < abs(rough.value / exact - 1))
    assert sum(short) <= 1


@pytest.mark.parametrize("frozen", [None, "0.weight", "2.bias"])
def test_a_block_of_directions_at_once_is_each_of_them(frozen):
    """On a GPU a block goes through dense layers as one product of matrices."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4, bias=True)).double()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name != frozen)
    curvature = LossCurvature(model, (torch.randn(6, 5).double(), torch.arange(6) % 4))
    vectors = torch.randn(3, curvature.size, dtype=torch.float64)
    (chunk,) = curvature.chunks()
    assert chunk.dense
    found = chunk.jvps(curvature.split(vectors))
    torch.testing.assert_close(found, torch.stack([chunk.jvp(curvature.split(v)) for v in vectors]))


class Skip(nn.Module):
    """Two dense layers with a way around the second: no chain."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 4)

    def forward(self, x):
        x = self.first(x).tanh()
        return self.head(x + self.second(x).tanh())


class Function(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


class Unused(nn.Module):
    """A dense layer that `forward` does not call, as an auxiliary head in evaluation."""

    def __init__(self):
        super().__init__()
        self.first, self.aside, self.head = nn.Linear(5, 7), nn.Linear(7, 2), nn.Linear(7, 4)

    def forward(self, x):
        return self.head(self.first(x).tanh())


def dense(*between, after=None):
    layers = [nn.Linear(5, 7), between[0], nn.Linear(7, 7), between[1], nn.Linear(7, 4)]
    return nn.Sequential(*layers, *([after] if after else []))


CHAINS = {
    "tanh": (lambda: dense(nn.Tanh(), nn.Tanh()), True),
    "relu and dropout": (lambda: dense(nn.ReLU(inplace=True), nn.Dropout(0.5)), True),
    "gelu and silu": (lambda: dense(nn.GELU(), nn.SiLU()), True),
    "one layer": (lambda: nn.Linear(5, 4), True),
    "a layer aside": (Unused, True),
    "softmax between": (lambda: dense(nn.Tanh(), nn.Softmax(1)), False),
    "norm between": (lambda: dense(nn.LayerNorm(7, elementwise_affine=False), nn.Tanh()), False),
    "a clip that does nothing yet": (
        lambda: dense(nn.Tanh(), Function(lambda x: x * (9 / x.norm()).clamp(max=1))),
        False,
    ),
    "scaled logits": (lambda: dense(nn.Tanh(), nn.Tanh(), after=Function(lambda z: 2 * z)), False),
    "clamped logits": (
        lambda: dense(nn.Tanh(), nn.Tanh(), after=Function(lambda z: z.clamp(-50, 50))),
        False,
    ),
    "a way around": (Skip, False),
}


@pytest.mark.parametrize("zero", [False, True], ids=["", "zero head"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_dense_layers_is_known_by_its_graph(name, zero):
    """And not by its products: with a head of zeros those of any network would do."""
    torch.manual_seed(0)
    build, expected = CHAINS[name]
    model = build().double()
    with torch.no_grad():
        list(model.parameters())[-2].mul_(0.0 if zero else 1.0)
    curvature = LossCurvature(model, (torch.randn(90, 5).double(), torch.arange(90) % 4))
    (chunk,) = curvature.chunks()
    assert chunk.find_slopes() == expected


@pytest.mark.parametrize("name", [name for name, (_, chain) in CHAINS.items() if chain])
def test_blocks_of_products_through_a_chain_are_those_of_autograd(name):
    torch.manual_seed(0)
    curvature = LossCurvature(
        CHAINS[name][0]().double(), (torch.randn(9, 5).double(), torch.arange(9) % 4)
    )
    (chunk,) = curvature.chunks()
    vectors, u = block(curvature), torch.randn(3, 9, 4, dtype=torch.float64)
    pushed = torch.stack([chunk.jvp(curvature.split(v)) for v in vectors])
    pulled = [torch.stack(parts) for parts in zip(*map(chunk.vjp, u), strict=True)]
    assert chunk.find_slopes()
    torch.testing.assert_close(chunk.jvps(curvature.split(vectors)), pushed)
    found = chunk.vjps(u)
    torch.testing.assert_close([found[i] for i in range(len(pulled))], pulled)


@pytest.mark.parametrize("frozen", [None, "0.weight", "2.weight", "4.bias"])
def test_products_by_slopes_are_those_of_autograd(frozen):
    torch.manual_seed(0)
    model = dense(nn.Tanh(), nn.ReLU()).double()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name != frozen)
    curvature = LossCurvature(model, (torch.randn(6, 5).double(), torch.arange(6) % 4))
    (chunk,) = curvature.chunks()
    vectors, u = block(curvature), torch.randn(3, 6, 4, dtype=torch.float64)
    pushed = torch.stack([chunk.jvp(curvature.split(v)) for v in vectors])
    pulled = [torch.stack(parts) for parts in zip(*map(chunk.vjp, u), strict=True)]
    for slopes in (False, True):
        if slopes:
            chunk.find_slopes()
            assert chunk.slopes is not None
        torch.testing.assert_close(chunk.jvps(curvature.split(vectors)), pushed)
        found = chunk.vjps(u)
        torch.testing.assert_close([found[i] for i in range(len(pulled))], pulled)


def test_subspace_products_by_slopes_are_those_one_at_a_time():
    torch.manual_seed(0)
    model = dense(nn.Tanh(), nn.Tanh()).double()
    curvature = LossCurvature(model, (torch.randn(30, 5).double(), torch.arange(30) % 4))
    space = InputSubspace(curvature, 3)
    vectors = torch.randn(2, space.size, dtype=torch.float64)
    u = torch.randn(2, 30, 4, dtype=torch.float64)
    images, (inside, outside) = space.images(vectors), space.pull_inside_and_outside(u)
    (chunk,) = curvature.chunks()
    chunk.find_slopes()
    torch.testing.assert_close(chunk.jvps(space.split(vectors), first=space.inputs), images)
    pulled = space._join_blocks(chunk.vjps(u, first=space.inputs_and_sketch)) / curvature.count
    torch.testing.assert_close(pulled, torch.cat([inside, outside], 1))
