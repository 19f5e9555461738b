"""Models that autograd treats in its own way: the right number, or a sentence that leads to it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

from toosure import Watch
from toosure.curvature import (
    CurvatureTracker,
    gn_sharpness,
    hessian_sharpness,
    jacobian_norms,
    kappa_min,
)

LABELS = torch.arange(12) % 3
IMAGES = torch.randn(12, 1, 2, 3, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randint(0, 10, (12, 6), generator=torch.Generator().manual_seed(0))


def dense_eigenvalues(model, inputs):
    """Eigenvalues of the Hessian of the mean loss, formed in float64 by double backward."""
    model = model.double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    named = dict(model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def loss(vector):
        parts = zip(named.items(), vector.split(sizes), strict=True)
        state = {name: part.view(p.shape) for (name, p), part in parts}
        return F.cross_entropy(functional_call(model, state, (inputs,)), LABELS)

    point = torch.cat([p.detach().flatten() for p in named.values()])
    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, point))
    model.float()
    return values


class FunctionalActivation(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "activation",
    [
        nn.SiLU(),
        nn.SiLU(inplace=True),
        nn.Mish(),
        FunctionalActivation(F.silu),
        FunctionalActivation(lambda x: F.mish(input=x)),
        nn.Hardswish(),
        nn.GELU(),
    ],
    ids=["silu", "silu-inplace", "mish", "F.silu", "F.mish", "hardswish", "gelu"],
)
def test_the_hessian_of_convolutions_and_smooth_activations_is_the_dense_one(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 2), activation, nn.Flatten(), nn.Linear(8, 3))
    values = dense_eigenvalues(model, IMAGES)
    data = (IMAGES, LABELS)
    largest = hessian_sharpness(model, data, rtol=1e-5)
    smallest = kappa_min(model, data, rtol=1e-4)
    assert largest.value == pytest.approx(values[-1].item(), rel=1e-4)
    assert smallest.value == pytest.approx(values[0].item(), rel=1e-3)


def hessian_by_differences(model, inputs):
    """The Hessian of the mean loss in float64, by differences of gradients."""
    model = model.double()
    named = dict(model.named_parameters())

    def gradient(vector):
        torch.nn.utils.vector_to_parameters(vector, named.values())
        loss = F.cross_entropy(model(inputs.double()), LABELS)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, named.values())])

    point = torch.nn.utils.parameters_to_vector(named.values()).detach()
    steps = 1e-5 * torch.eye(len(point), dtype=torch.float64)
    rows = [(gradient(point + step) - gradient(point - step)) / 2e-5 for step in steps]
    torch.nn.utils.vector_to_parameters(point, named.values())
    model.float()
    return torch.stack(rows)


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_weight_norm_has_the_hessian_of_its_formula(norm, dim):
    """The second derivative of torch's own is wrong (torch 2.13: gradgradcheck fails)."""
    torch.manual_seed(0)
    layers = norm(nn.Linear(6, 4), dim=dim), nn.Tanh(), nn.Linear(4, 3)
    model = nn.Sequential(nn.Flatten(), *layers)
    values = torch.linalg.eigvalsh(hessian_by_differences(model, IMAGES))
    data = (IMAGES, LABELS)
    largest, smallest = hessian_sharpness(model, data, rtol=1e-4), kappa_min(model, data, rtol=1e-4)
    assert largest.converged and smallest.converged
    assert largest.value == pytest.approx(values[-1].item(), rel=1e-3)
    assert smallest.value == pytest.approx(values[0].item(), rel=1e-3)


def test_an_embedding_with_sparse_gradients_has_the_curvature_of_a_dense_one():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 2, sparse=True), nn.Flatten(), nn.Linear(12, 3))
    dense = nn.Sequential(nn.Embedding(10, 2), nn.Flatten(), nn.Linear(12, 3))
    dense.load_state_dict(model.state_dict())
    data = (TOKENS, LABELS)
    largest = dense_eigenvalues(dense, TOKENS)[-1].item()
    assert hessian_sharpness(model, data, rtol=1e-5).value == pytest.approx(largest, rel=1e-4)
    assert gn_sharpness(model, data).value == gn_sharpness(dense, data).value

    # Training goes on with sparse gradients.
    F.cross_entropy(model(TOKENS), LABELS).backward()
    assert model[0].sparse and model[0].weight.grad.is_sparse


class LearnedScale(nn.Module):
    """A network with a parameter that is a single number."""

    def __init__(self, inputs):
        super().__init__()
        self.first = nn.Linear(inputs, 4)
        self.last = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.last(torch.tanh(self.scale * self.first(x.flatten(1))))


def test_a_parameter_without_axes_counts_like_any_other():
    torch.manual_seed(0)
    model = LearnedScale(6)
    data = (IMAGES, LABELS)
    largest = dense_eigenvalues(model, IMAGES)[-1].item()
    assert hessian_sharpness(model, data, rtol=1e-5).value == pytest.approx(largest, rel=1e-4)

    jacobian = torch.func.jacrev(functional_call, argnums=1)
    rows = jacobian(model, dict(model.named_parameters()), (IMAGES[:1],))
    whole = torch.cat([row.reshape(3, -1) for row in rows.values()], 1)
    norm = jacobian_norms(model, IMAGES[:1]).value.item()
    assert norm == pytest.approx(torch.linalg.matrix_norm(whole, 2).item(), rel=1e-4)

    value = CurvatureTracker(model, data, input_rank=3).measure()["gn_sharpness"].value
    assert value == pytest.approx(gn_sharpness(model, data).value, rel=2e-3)


def test_a_lazy_model_is_measured_after_the_call_that_the_sentence_asks_for():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(3))
    said = r"\['1.weight', .*have no shape yet.*`model\(inputs\[:2\]\)`"
    with pytest.raises(ValueError, match=said):
        gn_sharpness(model, (IMAGES, LABELS))

    model(IMAGES[:2])
    value = hessian_sharpness(model, (IMAGES, LABELS), rtol=1e-5).value
    assert value == pytest.approx(dense_eigenvalues(model, IMAGES)[-1].item(), rel=1e-4)


class ComplexWeights(nn.Module):
    """Logits |x W| of complex W, kept as complex numbers or as the sentence advises."""

    def __init__(self, real):
        super().__init__()
        weight = torch.randn(
            6, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)
        )
        self.weight = nn.Parameter(torch.view_as_real(weight).clone() if real else weight)

    def forward(self, x):
        weight = self.weight if self.weight.is_complex() else torch.view_as_complex(self.weight)
        return (x.flatten(1).to(weight.dtype) @ weight).abs()


def test_complex_parameters_are_measured_as_the_sentence_says(tmp_path):
    model = ComplexWeights(real=False)
    with pytest.raises(ValueError, match=r"\['weight'\] are complex.*torch.view_as_real"):
        hessian_sharpness(model, (IMAGES, LABELS))

    watch = Watch(
        model, nn.CrossEntropyLoss(), train=(IMAGES, LABELS), run=tmp_path / "run", measure=()
    )
    assert 0 <= watch.measure()["train/ece"] <= 1

    real = ComplexWeights(real=True)
    assert torch.equal(real(IMAGES), model(IMAGES))
    value = hessian_sharpness(real, (IMAGES, LABELS), rtol=1e-5).value
    assert value == pytest.approx(dense_eigenvalues(real, IMAGES)[-1].item(), rel=1e-4)


def test_a_derivative_that_torch_lacks_is_explained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"second derivative that torch does not have.*embedding"):
        gn_sharpness(model, (TOKENS, LABELS))

    # Its parameters left out, what remains is the Hessian of a linear model.
    value = gn_sharpness(model, (TOKENS, LABELS), rtol=1e-5, parameters=["1.*"]).value
    features = model[0](TOKENS).detach()
    assert value == pytest.approx(dense_eigenvalues(model[1], features)[-1].item(), rel=1e-4)


class InAutocast(nn.Module):
    def __init__(self, model, as_float):
        super().__init__()
        self.model = model
        self.as_float = as_float

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(x)
        return logits.float() if self.as_float else logits


@pytest.mark.parametrize("as_float", [True, False])
def test_a_model_with_an_autocast_of_its_own_is_measured_up_to_its_rounding(as_float):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))
    data = torch.randn(12, 6), LABELS
    cross_entropy = nn.CrossEntropyLoss()
    exact = gn_sharpness(model, data, cross_entropy)
    rounded = gn_sharpness(InAutocast(model, as_float), data, cross_entropy)
    assert float(rounded.value) == pytest.approx(float(exact.value), rel=0.02)
