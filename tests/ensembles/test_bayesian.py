"""Distributions over weights: divergences, limits, moments of the estimators, annealing."""

import math

import pytest
import torch
from scipy.integrate import quad
from torch import nn
from torch.distributions import Normal, kl_divergence

from toosure.ensembles import VI, BatchEnsemble, Rank1, log_mean_probability
from toosure.ensembles.batch_ensemble import member_layers
from toosure.ensembles.divergences import annealing, cauchy_kl, gaussian_kl, tied_gaussian_kl
from toosure.ensembles.noise import noise_in
from toosure.ensembles.rank1 import random_layers
from toosure.ensembles.vi import UncertainLayer, uncertain_layers
from toosure.models import resnet20, resnet56, wrn28_10

X = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(6)
PAIR = (X, Y)


def network():
    torch.manual_seed(0)
    return resnet20((3, 16, 16)).double()


def close(a, b, atol=1e-12):
    """Assert that two tensors agree to `atol`, in units of the largest value where that is above 1.

    Processors round alike only relative to what they add up.
    """
    size = max(1.0, float(b.detach().abs().max()))
    torch.testing.assert_close(a, b, rtol=0, atol=atol * size)


# -- divergences ------------------------------------------------------------------------------


def test_gaussian_divergences_are_those_of_torch():
    mean = torch.randn(5, dtype=torch.float64)
    std = torch.rand(5, dtype=torch.float64) + 0.01
    prior = Normal(torch.tensor(1.0).double(), torch.tensor(0.1, dtype=torch.float64))
    close(gaussian_kl(mean, std, 1.0, 0.1), kl_divergence(Normal(mean, std), prior).sum(), 1e-9)
    tied = kl_divergence(Normal(mean, std), Normal(mean, torch.full_like(std, 0.1))).sum()
    close(tied_gaussian_kl(std, 0.1), tied, 1e-9)
    assert tied_gaussian_kl(torch.tensor([0.1]), 0.1).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(("place", "scale"), [(1.0, 0.1), (0.3, 0.5), (-1.0, 0.03)])
def test_the_cauchy_divergence_is_its_integral(place, scale):
    def density(x, at, wide):
        return wide / math.pi / ((x - at) ** 2 + wide**2)

    def integrand(angle):  # x = place + scale tan(angle): the density becomes uniform
        x = place + scale * math.tan(angle)
        return math.log(density(x, place, scale) / density(x, 1.0, 0.1)) / math.pi

    wanted, _ = quad(integrand, -math.pi / 2, math.pi / 2, limit=200)
    found = cauchy_kl(torch.tensor([place]).double(), torch.tensor([scale]).double(), 1.0, 0.1)
    assert found.item() == pytest.approx(wanted, abs=1e-6)


def test_annealing_at_the_start_half_way_and_the_end():
    assert [annealing(s, 250, 0.8) for s in (0, 99, 199, 249)] == [1 / 200, 0.5, 1.0, 1.0]
    assert annealing(0, None, 0.8) == annealing(0, 10, 0.0) == 1.0


@pytest.mark.parametrize("objective", [VI(training_steps=10), Rank1(members=2, training_steps=10)])
def test_the_loss_is_nll_and_the_scaled_divergence_per_example(objective):
    model = network()
    objective.setup(model, PAIR)
    problem = objective.prepare(model, (X, Y, Y))
    found = objective(model, problem)
    assert objective.scale() == 1 / 8
    divergence = objective.divergence(model)
    objective.examples = 10**12  # what is left is the NLL
    close(found - objective(model, problem), divergence / 8 / 6, 1e-5 * divergence.item())
    assert objective.report()["objective/kl_scale"] == 1 / 8
    assert objective.report()["objective/kl"] == pytest.approx(divergence.item())


def test_the_divergence_of_a_network_is_the_sum_over_its_weights():
    model = network()
    objective = VI(tied=False, prior=0.3)
    objective.setup(model, PAIR)
    prior = Normal(torch.zeros(()).double(), torch.tensor(0.3, dtype=torch.float64))
    each = [
        kl_divergence(Normal(layer.layer.weight, layer.std), prior).sum()
        for layer in uncertain_layers(model)
    ]
    assert len(each) == 20
    close(objective.divergence(model), sum(each), 1e-6)


# -- limits -----------------------------------------------------------------------------------


def test_vi_without_deviations_is_the_plain_network():
    plain, model = network().eval(), network().eval()
    objective = VI(samples=2)
    objective.setup(model, PAIR)
    close(objective.mean_predict(model, X), plain(X))
    for layer in uncertain_layers(model):
        layer.rho.data.fill_(-60.0)
    close(objective.predict(model, X), plain(X).log_softmax(1))
    x, _, _, *noise = objective.prepare(model, (X, Y, Y))
    with noise_in(uncertain_layers(model), noise):
        close(model(x), plain(X))


def test_rank1_without_deviations_is_batch_ensemble():
    one, two = network().eval(), network().eval()
    bayesian, plain = Rank1(members=2), BatchEnsemble(members=2, init="sign")
    bayesian.setup(one, PAIR)
    plain.setup(two, PAIR)
    close(bayesian.mean_predict(one, X), plain.predict(two, X))  # the same signs
    for layer in random_layers(one):
        layer.read_rho.data.fill_(-60.0)
        layer.given_rho.data.fill_(-60.0)
    close(bayesian.member_logits(one, X), plain.member_logits(two, X))
    x, labels, _, *noise = bayesian.prepare(one, (X, Y, Y))
    found = bayesian(one, (x, labels, torch.zeros(()), *noise))
    close(found, plain(two, plain.prepare(two, (X, Y, Y))))


# -- moments of the estimators ----------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["flipout", "local"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_outputs_have_the_mean_and_variance_of_the_weights(estimator, kind):
    """Mean x mu and variance x^2 sigma^2, by 3 standard errors over many rows."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    inner = nn.Linear(3, 2) if kind == "linear" else nn.Conv2d(3, 2, 2, bias=False)
    layer = UncertainLayer(inner.double(), 0.5, estimator, generator)
    x = torch.randn(3, dtype=torch.float64) if kind == "linear" else torch.randn(3, 2, 2).double()
    one = x[None]
    mean = layer(one)
    variance = (
        nn.functional.linear(one.square(), layer.std.square())
        if kind == "linear"
        else (nn.functional.conv2d(one.square(), layer.std.square()))
    )
    samples = []
    for _ in range(200):
        rows = one.expand(50, *x.shape)
        layer.noise = layer.draw(50, generator)
        samples.append(layer(rows))
        layer.noise = None
    found = torch.cat(samples).detach() - mean.detach()
    n = len(found)
    assert (found.mean(0).abs() < 4 * (variance[0] / 200).sqrt()).all()  # eps is one per batch
    ratio = found.square().mean(0) / variance[0]
    assert (ratio - 1).abs().max() < (0.4 if estimator == "flipout" else 4 * math.sqrt(2 / n))


def test_flipout_averaged_over_its_signs_is_the_mean():
    layer = UncertainLayer(nn.Linear(2, 1).double(), 0.5, "flipout", torch.Generator())
    x = torch.randn(4, 2, dtype=torch.float64)
    signs = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]]).double()
    outputs = []
    for given in (1.0, -1.0):
        for row in signs:
            read = row.expand(4, 2)
            layer.noise = (read, torch.full((4, 1), given).double(), torch.ones(1, 2).double())
            outputs.append(layer(x))
    layer.noise = None
    close(torch.stack(outputs).mean(0), layer(x))


def test_a_prediction_draws_one_network_for_all_rows():
    model = network().eval()
    objective = VI(samples=3, sigma=0.1)
    objective.setup(model, PAIR)
    whole = objective.member_logits(model, X)
    close(objective.member_logits(model, X[3:]), whole[:, 3:], 1e-9)  # logits are in the thousands
    assert not torch.allclose(whole[0], whole[1])


def test_rank1_draws_for_each_row_and_clips():
    model = network().eval()
    objective = Rank1(members=2, samples=2, family="cauchy", sigma=5.0)
    objective.setup(model, PAIR)
    layer = random_layers(model)[0]
    noise = layer.draw(400, torch.Generator().manual_seed(0))[0]
    assert noise.shape == (400, 3) and noise.abs().max() > 50
    factors = layer.drawn(layer.read, layer.read_rho, noise, torch.empty(400, 3, 1, 1))
    assert factors.abs().max() == 10
    same = torch.cat([X[:1], X[:1]])
    logits = objective.member_logits(model, same)
    assert logits.shape == (4, 2, 10) and not torch.allclose(logits[:, 0], logits[:, 1])
    close(objective.predict(model, same), log_mean_probability(logits))


@pytest.mark.parametrize(
    ("build", "objective", "parameters"),
    [
        (resnet20, VI(), 538_058),
        (resnet20, Rank1(members=4), 280_864),
        (resnet56, VI(), 1_701_962),
        (resnet56, Rank1(members=4), 885_664),
        pytest.param(wrn28_10, VI(), 72_940_426, marks=pytest.mark.slow),
        pytest.param(wrn28_10, Rank1(members=4), 36_635_872, marks=pytest.mark.slow),
    ],
)
def test_parameter_counts(build, objective, parameters):
    model = build()
    objective.setup(model, (torch.zeros(1, 3, 32, 32), torch.tensor([0])))
    assert sum(p.numel() for p in model.parameters()) == parameters
    groups = list(objective.parameters())
    assert [group["weight_decay"] for group in groups] == [0.0]


def test_fast_weights_start_where_they_should():
    model = network()
    Rank1(members=3).setup(model, PAIR)
    layers = member_layers(model)
    assert set(torch.cat([layer.read.flatten() for layer in layers]).unique().tolist()) == {-1, 1}
    std = nn.functional.softplus(layers[3].given_rho)
    close(std, torch.full_like(std, 0.0316), 1e-9)
    model = network()
    VI().setup(model, PAIR)
    std = torch.cat([layer.std.flatten() for layer in uncertain_layers(model)])
    assert std.log().mean().exp().item() == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VI(samples=0), "samples must be at least 1"),
        (lambda: VI(estimator="mean"), "estimator must be flipout or local"),
        (lambda: VI(prior=0.0), "prior must be"),
        (lambda: VI(anneal=2.0), "anneal is a share"),
        (lambda: Rank1(family="laplace"), "family must be gaussian or cauchy"),
        (lambda: Rank1(samples=0), "samples must be at least 1"),
        (lambda: Rank1(members=0), "members must be at least 1"),
    ],
)
def test_mistakes_are_found(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- mixed precision --------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [BatchEnsemble(members=2), Rank1(members=2), VI(samples=2)])
def test_rows_stay_in_bf16_under_mixed_precision(objective):
    """Float32 factors would make every layer between two convolutions twice as wide in memory."""
    torch.manual_seed(0)
    model = resnet20((3, 16, 16))
    batch = (X.float(), Y, Y)
    objective.setup(model, (X.float(), Y))
    seen = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].dtype))

    with torch.autocast("cpu", torch.bfloat16):
        objective(model, objective.prepare(model, batch))
    assert len(seen) >= 19 and set(seen) == {torch.bfloat16}
