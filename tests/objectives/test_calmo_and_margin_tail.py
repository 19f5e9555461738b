"""CalMO and the robust-margin tail: figures on an affine network, limits, passes."""

import math
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure import margins, metrics
from toosure.curvature.products.precision import double_differentiable
from toosure.models import resnet20
from toosure.objectives import CalMO, MarginTail
from toosure.objectives.attack import input_gradient, linf_attack, margin_of
from toosure.objectives.calmo import divergence
from toosure.objectives.gradient_penalty import ways_agree
from toosure.objectives.margin_tail import log_tail
from toosure.optim import SAM
from toosure.train.steps import Step

CE = nn.CrossEntropyLoss()


@pytest.fixture
def affine():
    """z = W x + b, whose margins are known by hand."""
    model = nn.Linear(2, 3).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1, -1], [0, 2], [-1, 0.5]]))
        model.bias.copy_(torch.tensor([0.1, 0, -0.2]))
    return model


ONE = torch.tensor([[0.6, 0.3]], dtype=torch.float64), torch.tensor([0]), torch.arange(1)
THREE = (
    torch.tensor([[0.6, 0.3], [0.9, 0.1], [0.2, 0.8]], dtype=torch.float64),
    torch.tensor([0, 0, 1]),
    torch.arange(3),
)


def value(objective, model, batch):
    return objective(model, objective.prepare(model, batch))


def number(tensor):
    return tensor.detach().item()


def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    batch = torch.randn(6, 3, 2, 2).double(), torch.tensor([0, 1, 2, 3, 0, 1]), torch.arange(6)
    return model, batch


def hard_tail():
    return MarginTail(temperature=0.0, eps=8 / 255, norm="l2")


# CalMO


def test_calmo_by_hand(affine):
    x, y, _ = ONE
    torch.testing.assert_close(
        affine(x).detach(), torch.tensor([[0.4, 0.6, -0.65]], dtype=torch.float64)
    )
    attacked = linf_attack(affine, x, y, 8 / 255, 2 / 255, 3)
    torch.testing.assert_close(attacked - x, torch.tensor([[-6, 6]], dtype=torch.float64) / 255)
    assert number(margin_of(affine(attacked), y)) == pytest.approx(-0.29411765, abs=1e-6)
    kl = divergence(affine(x), affine(attacked))
    assert number(kl) == pytest.approx(0.00099534, abs=1e-6)
    assert number(CE(affine(x), y)) == pytest.approx(0.94442736, abs=1e-6)
    assert number(value(CalMO(robust=0, smooth=1), affine, ONE)) == pytest.approx(
        0.94442736 + 10, abs=1e-6
    )
    assert number(value(CalMO(), affine, ONE)) == pytest.approx(1.04492503, abs=1e-6)


def test_robust_margin_of_an_affine_network(affine):
    x, y, _ = ONE
    x = x.clone().requires_grad_()
    margin = margin_of(affine(x), y)
    gradient = input_gradient(margin, x)
    assert number(margin) == pytest.approx(-0.2) and gradient.tolist()[0] == pytest.approx([1, -3])
    assert number(margin - 8 / 255 * gradient.abs().sum()) == pytest.approx(-0.3254902, abs=1e-6)
    assert number(margin - 8 / 255 * gradient.norm()) == pytest.approx(-0.29920871, abs=1e-6)
    assert number(margin_of(affine(x), y, 1.0)) == pytest.approx(-0.45192908, abs=1e-6)
    assert number(margin_of(affine(x), y, 0.1)) == pytest.approx(-0.20000037, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_margins_are_those_of_the_margins_room(fixture_f, temperature):
    wanted = (
        margins.soft_margin(*fixture_f, temperature)
        if temperature
        else margins.true_margin(*fixture_f)
    )
    torch.testing.assert_close(margin_of(*fixture_f, temperature), wanted)


def test_calmo_without_terms_is_cross_entropy():
    model, batch = small()
    assert torch.equal(
        value(CalMO(robust=0, smooth=0), model, batch), CE(model(batch[0]), batch[1])
    )


def test_no_radius_no_divergence():
    model, batch = small()
    plain = CE(model(batch[0]), batch[1])
    torch.testing.assert_close(value(CalMO(smooth=0, eps=0.0), model, batch), plain)


def test_calmo_is_its_formula_and_so_is_its_gradient():
    """Each term again, by the slowest way; the gradient by finite differences."""
    model, batch = small()
    x, y, _ = batch
    objective = CalMO(robust=0.7, smooth=0.3, eps=0.2, step=0.1)
    prepared = objective.prepare(model, batch)
    found = objective(model, prepared)
    p, q = model(x).softmax(1), model(prepared[2]).softmax(1)
    kl = (p * (p.log() - q.log())).sum(1).mean()
    squares = []
    for i in range(len(x)):
        one = x[i : i + 1].clone().requires_grad_()
        margin = margins.true_margin(model(one), y[i : i + 1])
        squares.append(torch.autograd.grad(margin.sum(), one)[0].square().sum())
    wanted = CE(model(x), y) + 0.7 * kl + 0.3 * torch.stack(squares).mean()
    torch.testing.assert_close(found, wanted)
    weight = model[1].weight
    found.backward()
    step = 1e-6 * torch.randn_like(weight)
    with torch.no_grad():
        weight += step
    above = objective(model, prepared).item()
    with torch.no_grad():
        weight -= 2 * step
    below = objective(model, prepared).item()
    assert (above - below) / 2 == pytest.approx(number((weight.grad * step).sum()), rel=1e-5)


def test_the_attack_stays_inside_and_raises_the_loss():
    model, (x, y, _) = small()
    attacked = linf_attack(model, x, y, 0.05, 0.04, 4)
    assert (attacked - x).abs().max() <= 0.05 + 1e-12
    assert CE(model(attacked), y) > CE(model(x), y)
    assert all(p.grad is None for p in model.parameters())


def test_pixels_are_another_space():
    """In pixels, a step of eps is eps / std of what the network sees, and slopes are by pixels."""
    model, batch = small()
    data = SimpleNamespace(std=torch.full((3, 1, 1), 0.25))
    pixels = CalMO(eps=0.01, step=0.005, smooth=0.01, space="pixels")
    pixels.setup(model, data)
    standardised = CalMO(eps=0.04, step=0.02, smooth=0.16)
    torch.testing.assert_close(value(pixels, model, batch), value(standardised, model, batch))


def test_the_attack_leaves_batch_norm_alone_and_its_mode_back():
    torch.manual_seed(0)
    model = resnet20().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    linf_attack(model, torch.randn(4, 3, 32, 32), torch.arange(4), 0.1, 0.05, 1)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(module.training for module in model.modules())


def counting(model):
    """Count the passes of a model."""
    passes = []
    model.register_forward_hook(lambda module, inputs, out: passes.append(module.training))
    return passes


@pytest.mark.parametrize("dual", [False, True])
def test_the_passes_of_calmo(dual):
    """Three attack; clean and attacked inputs; with dual numbers one more, for the slopes."""
    model, batch = small()
    objective = CalMO()
    objective.gradient_penalty.dual = dual
    passes = counting(model)
    value(objective, model, batch).backward()
    assert passes == [False] * 3 + [True] * (2 + dual)


def networks():
    torch.manual_seed(0)
    convolutions = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    yield nn.Sequential(*convolutions, nn.Linear(16, 4)).double()
    yield small()[0]


@pytest.mark.parametrize("model", list(networks()))
@pytest.mark.parametrize("objective", [CalMO(smooth=0.5), MarginTail(smooth=0.5), hard_tail()])
def test_dual_numbers_equal_second_derivatives(model, objective):
    """Value, gradients and running statistics; the slow version is the plain formula."""
    x, y, _ = small()[1]
    found = []
    for dual in (True, False):
        twin, objective.gradient_penalty.dual = deepcopy(model), dual
        loss = value(objective, twin, (x, y, None))
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in twin.parameters()), *twin.buffers()])
    torch.testing.assert_close(*found)
    objective.gradient_penalty.dual = None
    with double_differentiable():
        assert ways_agree(model, x, lambda logits: margin_of(logits, y))


class Unknown(torch.autograd.Function):
    """A layer without a rule for dual numbers."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return slope


class UnknownLayer(nn.Module):
    def forward(self, x):
        return Unknown.apply(x)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), UnknownLayer()])
def test_what_cannot_be_repeated_is_differentiated_twice(layer):
    model, (x, y, _) = small()
    model.insert(2, layer)
    state = torch.get_rng_state()
    with double_differentiable():
        assert not ways_agree(model, x, lambda logits: margin_of(logits, y))
    assert torch.equal(state, torch.get_rng_state())


def test_sam_reuses_the_attack():
    model, batch = small()
    passes, objective = counting(model), CalMO()
    optimizer = SAM(model.parameters(), rho=0.05, lr=0.1)
    prepared = objective.prepare(model, batch)

    def closure():
        loss = objective(model, prepared)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert passes == [False] * 3 + [True] * 4


@pytest.mark.parametrize("kind", [CalMO, MarginTail])
@pytest.mark.parametrize("optimizer", ["sgd", "sam"])
def test_a_graph_records_the_attack_too(kind, optimizer):
    """With a stand-in for the graph: preparing inside the recorded step changes no bit."""
    from test_graph import OPTIMIZERS, StandIn

    weights = []
    for wrap in (lambda step: step, lambda step: StandIn(step, False, False)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        surrogate = {"surrogate": "pgd"} if kind is MarginTail else {}
        step = wrap(Step(model, kind(**surrogate), OPTIMIZERS[optimizer](model)))
        for number in range(7):
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(number))
            step((x, torch.arange(6) % 3, torch.arange(6)), 0.1)
        weights.append([p.detach().clone() for p in model.parameters()])
        halves = getattr(step, "step", step).halves
        assert (halves is not None) == isinstance(step, StandIn)
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


# The robust-margin tail


def hard(**settings):
    return MarginTail(temperature=0.0, eps=8 / 255, **settings)


def test_margin_tail_by_hand(affine):
    x, y, _ = THREE
    x = x.clone().requires_grad_()
    margin = margin_of(affine(x), y)
    gradient = input_gradient(margin, x)
    assert margin.tolist() == pytest.approx([-0.2, 0.7, 1.6])
    assert gradient.abs().sum(1).tolist() == pytest.approx([4, 4, 2.5])
    low = margin - 8 / 255 * hard().dual_norm(gradient)
    assert low.tolist() == pytest.approx([-0.3254902, 0.5745098, 1.52156863], abs=1e-6)
    assert number(log_tail(margin, 3.0).exp()) == pytest.approx(0.63996153, abs=1e-6)
    assert number(log_tail(low, 3.0)) == pytest.approx(-0.32570285, abs=1e-6)
    assert number(F.softplus(log_tail(low, 3.0))) == pytest.approx(0.54349785, abs=1e-6)
    tempered = 2 * ((-low / 2).logsumexp(0) - math.log(3))
    assert number(tempered) == pytest.approx(-0.45099521, abs=1e-6)
    (slope,) = torch.autograd.grad(log_tail(low, 3.0), low)
    assert (-slope).tolist() == pytest.approx([0.63927584, 0.25991016, 0.100814], abs=1e-6)
    assert number(gradient.square().sum() / 3) == pytest.approx(7.75)
    objective = hard()
    assert number(value(objective, affine, THREE)) == pytest.approx(0.70496707, abs=1e-6)
    assert objective.report()["objective/log_q"] == pytest.approx(-0.32570285, abs=1e-6)


def test_an_attacked_tail_by_hand(affine):
    """Steps of 2.5 eps / 3 end in the corner: (.6, .3) goes to (.3, .6), where m = -.2 - 1.2."""
    objective = MarginTail(surrogate="pgd", eps=0.3, temperature=0.0, smooth=0.0)
    passes = counting(affine)
    prepared = objective.prepare(affine, ONE)
    torch.testing.assert_close(prepared[3], torch.tensor([[0.3, 0.6]], dtype=torch.float64))
    found = objective(affine, prepared)
    wanted = 0.94442736 + 0.1 * math.log1p(math.exp(1.4))
    assert number(found) == pytest.approx(wanted, abs=1e-6)
    assert objective.report()["objective/log_q"] == pytest.approx(1.4)
    assert (
        passes == [False] * 3 + [True] * 2 and objective.gradient_penalty.dual is None
    )  # no slopes


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own, while compiling
@pytest.mark.parametrize("kind", [CalMO, MarginTail])
def test_a_compiled_network_is_differentiated_twice_as_it_was_written(kind):
    model, batch = small()
    wanted = value(kind(), model, batch)
    compiled = torch.compile(model, backend="aot_eager")
    found = value(kind(), compiled, batch)
    torch.testing.assert_close(found, wanted)
    found.backward()


def test_margin_tail_without_terms_is_cross_entropy():
    model, batch = small()
    plain = CE(model(batch[0]), batch[1])
    assert torch.equal(value(MarginTail(tail=0, smooth=0), model, batch), plain)


def test_no_radius_is_the_clean_moment():
    model, batch = small()
    found = value(MarginTail(tail=1.0, smooth=0, eps=0.0, cap=50.0), model, batch)
    logits = model(batch[0])
    moment = margins.log_moment(margins.soft_margin(logits, batch[1]))
    torch.testing.assert_close(found, CE(logits, batch[1]) + F.softplus(moment))


def test_the_tangent_continues_the_exponential():
    """phi is C^1 at -c, grows linearly beyond, and its slope is capped."""
    c = 3.0
    m = torch.tensor([-c - 1e-7, -c, -c + 1e-7, -100.0], dtype=torch.float64, requires_grad=True)
    values = torch.stack([log_tail(each[None], c).exp() for each in m])
    (slopes,) = torch.autograd.grad(values.sum(), m)
    assert values[:3].tolist() == pytest.approx([math.exp(c)] * 3, rel=1e-6)
    assert slopes[:3].tolist() == pytest.approx([-math.exp(c)] * 3, rel=1e-6)
    assert number(values[3]) == pytest.approx(math.exp(c) * (1 - c + 100))
    assert number(slopes[3]) == pytest.approx(-math.exp(c))


def test_the_pull_on_all_margins_is_less_than_one():
    m = torch.linspace(-2, 5, 9, dtype=torch.float64, requires_grad=True)
    log_q = log_tail(m, 3.0)
    (slope,) = torch.autograd.grad(F.softplus(log_q), m)
    torch.testing.assert_close(slope.sum(), -log_q.detach().sigmoid())
    torch.testing.assert_close(slope, -log_q.detach().sigmoid() * (-m).softmax(0).detach())


def test_finite_at_margins_of_ten_thousand():
    m = torch.tensor([-1e4, 1e4, 0.0], requires_grad=True)
    (slope,) = torch.autograd.grad(log_tail(m, 3.0), m)
    assert slope.isfinite().all() and log_tail(m, 3.0).isfinite()


def test_the_moment_bounds_the_calibration_error():
    model, (x, y, _) = small()
    for scale in (0.1, 1.0, 10.0):
        logits = scale * model(x)
        ece = metrics.ece(logits, y)
        soft = log_tail(margin_of(logits, y, 1.0), 50.0).exp()
        true = log_tail(margin_of(logits, y), 50.0).exp()
        assert ece <= soft <= 3 * true + 1e-12


@pytest.mark.parametrize("settings", [{}, {"norm": "l2"}, {"surrogate": "pgd"}])
def test_margin_tail_slopes(settings):
    model, batch = small()
    objective = MarginTail(tail=1.0, smooth=0.1, eps=0.1, **settings)
    prepared = objective.prepare(model, batch)
    weight = model[1].weight
    objective(model, prepared).backward()
    step = 1e-6 * torch.randn_like(weight)
    values = []
    for sign in (1, -2):
        with torch.no_grad():
            weight += sign * step
        values.append(objective(model, prepared).item())
    difference = (values[0] - values[1]) / 2
    assert difference == pytest.approx(number((weight.grad * step).sum()), rel=1e-4)


def test_the_weights_rise_over_the_first_steps():
    model, batch = small()
    plain = CE(model(batch[0]), batch[1]).item()
    objective = MarginTail(training_steps=100, warm_up=0.05)
    extra = [value(objective, model, batch).item() - plain for _ in range(7)]
    assert [e / extra[-1] for e in extra] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CalMO(robust=-1), "must not be negative"),
        (lambda: CalMO(space="moon"), "space must be one of"),
        (lambda: MarginTail(surrogate="pgd", norm="l2"), "sign steps"),
        (lambda: MarginTail(tail=-1), "must not be negative"),
        (lambda: MarginTail(cap=-5.0), "cap >= 0"),
        (lambda: MarginTail(surrogate="pgd", attack_steps=0), "attack_steps >= 1"),
        (lambda: CalMO(space="pixels").prepare(None, ONE), "size of a pixel: call setup"),
    ],
)
def test_mistakes_say_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()
