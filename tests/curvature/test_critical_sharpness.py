"""Critical sharpness against quadratics, where it has a closed form, and against a fine scan."""

import math
import statistics

import numpy as np
import pytest
import torch
from dense import make
from torch import nn

from toosure.curvature import critical_sharpness
from toosure.curvature.critical import Search, WarmStep
from toosure.watch import Watch


def quadratic(dtype=torch.float64):
    """A linear network under half the squared error, with its dense gradient and Hessian."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3, dtype=dtype)
    x = torch.randn(30, 4, dtype=dtype) * torch.tensor([3.0, 1.0, 1.0, 0.3], dtype=dtype)
    y = torch.arange(30) % 3

    # Parameters in order: the rows of the weight, then the biases.
    wide = torch.zeros(30, 3, 15, dtype=dtype)
    for row in range(3):
        wide[:, row, 4 * row : 4 * row + 4] = x
        wide[:, row, 12 + row] = 1
    hessian = torch.einsum("nki,nkj->ij", wide, wide) / 30
    error = model(x).detach() - nn.functional.one_hot(y, 3)
    gradient = torch.einsum("nki,nk->i", wide, error) / 30
    return model, (x, y), gradient, hessian


def half_squared_error(logits, labels):
    target = nn.functional.one_hot(labels, logits.shape[1])
    return 0.5 * (logits - target).square().sum(1).mean()


def shaped(vector, model):
    parts = vector.split([p.numel() for p in model.parameters()])
    return [v.view_as(p) for v, p in zip(parts, model.parameters(), strict=True)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_on_a_quadratic_it_is_the_curvature_along_the_gradient(dtype):
    model, data, g, hessian = quadratic(dtype)
    found = critical_sharpness(model, data, half_squared_error)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    assert found.value == pytest.approx(float(g @ hessian @ g / (g @ g)), rel=tolerance)
    assert found.converged and found.error <= 0.02 and found.products <= 5


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e4])
def test_on_a_quadratic_it_is_the_curvature_along_any_update(size):
    model, data, g, hessian = quadratic()
    u = g.sign() * torch.arange(1, 16) * size  # as SignSGD with its own rate for every weight
    found = critical_sharpness(model, data, half_squared_error, update=shaped(u, model))
    assert found.value == pytest.approx(float(u @ hessian @ u / (g @ u)), rel=1e-9)


def test_a_network_against_a_fine_scan():
    model, data = make("mlp", n=20)
    gradient = torch.autograd.grad(
        nn.functional.cross_entropy(model(data[0]), data[1]), [*model.parameters()]
    )
    found = critical_sharpness(model, data, rtol=1e-6)
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    u = nn.utils.parameters_to_vector(gradient)

    def loss_at(step):
        nn.utils.vector_to_parameters(start - step * u, model.parameters())
        with torch.no_grad():
            return float(nn.functional.cross_entropy(model(data[0]), data[1]))

    steps = 2 / found.value * np.linspace(0, 1.2, 241)
    raised = [step for step in steps[1:] if loss_at(step) > loss_at(0.0)]
    assert abs(raised[0] * found.value / 2 - 1) <= 0.00501  # the grid's own width


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_six_forward_passes_along_training_are_enough(name):
    """The median with the documented tolerance; cold and warm find the same step."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 1, 6, 6), torch.arange(60) % 4
    layers = {
        "mlp": [nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 4)],
        "cnn": [nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4)],
    }
    model = nn.Sequential(*layers[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    warm = WarmStep()
    passes = []
    for step in range(60):
        if step % 4 == 0:
            found = critical_sharpness(model, (x, y), warm=warm)
            passes.append(found.products)
            assert found.converged
            assert found.value == pytest.approx(critical_sharpness(model, (x, y)).value, rel=0.02)
        rows = torch.randint(60, (20,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    assert statistics.median(passes) <= 6 and max(passes) <= 10


def test_a_warm_search_on_the_same_line_starts_at_its_end():
    model, data = make("mlp", n=20)
    warm = WarmStep()
    cold = critical_sharpness(model, data, warm=warm)
    again = critical_sharpness(model, data, warm=warm)
    assert again.products <= 4 and again.value == pytest.approx(cold.value, rel=0.02)
    assert warm.step == pytest.approx(2 / again.value)

    kept = WarmStep()
    kept.load_state_dict(warm.state_dict())
    assert critical_sharpness(model, data, warm=kept) == critical_sharpness(model, data, warm=warm)

    # A search that finds nothing leaves what was found before.
    found = warm.step
    critical_sharpness(model, data, lambda logits, labels: logits.mean(), warm=warm)
    assert warm.step == found


def test_the_model_is_only_read():
    model, data = make("cnn with BatchNorm", n=12)
    model.train()
    model(data[0]).sum().backward()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters()]
    critical_sharpness(model, data)
    assert model.training and all(m.training for m in model.modules())
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    assert all(map(torch.equal, gradients, [p.grad for p in model.parameters()]))


def test_an_error_inside_leaves_the_weights_as_they_were():
    model, data, _, _ = quadratic()
    before = model.weight.detach().clone()
    calls = []

    def loss(logits, labels):
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("no more")
        return half_squared_error(logits, labels)

    with pytest.raises(RuntimeError, match="no more"):
        critical_sharpness(model, data, loss)
    assert torch.equal(model.weight, before) and model.training


def test_chunks_class_weights_and_some_parameters():
    model, data = make("mlp", n=20)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    whole = critical_sharpness(model, data, weighted)
    assert critical_sharpness(model, data, weighted, chunk=3).value == pytest.approx(whole.value)
    assert critical_sharpness(model, data).value != pytest.approx(whole.value)

    names = [name for name, _ in model.named_parameters()]
    frozen = make("mlp", n=20)[0]
    for name, p in frozen.named_parameters():
        p.requires_grad_(name == names[-1])
    last = critical_sharpness(model, data, parameters=names[-1:])
    assert last.value == pytest.approx(critical_sharpness(frozen, data).value)


def test_what_cannot_be_found_says_why():
    model, data, g, _ = quadratic()
    uphill = critical_sharpness(model, data, half_squared_error, update=shaped(-g, model))
    assert not uphill.converged and "not a descent direction" in uphill.note
    assert uphill.value == math.inf

    falls = critical_sharpness(model, data, lambda logits, labels: logits.mean())
    assert not falls.converged and "does not rise" in falls.note and falls.value == 0

    flat = critical_sharpness(model, data, lambda logits, labels: 0 * logits.mean())
    assert not flat.converged and flat.note == "the gradient is zero"

    broken = critical_sharpness(model, data, lambda logits, labels: logits.mean() / 0)
    assert not broken.converged and math.isnan(broken.value)

    exact = critical_sharpness(model, data, half_squared_error, rtol=0.0)
    assert not exact.converged and "after 60 passes" in exact.note


def test_a_loss_that_overflows_has_risen():
    def loss_at(step):
        return math.inf if step > 3 else 1 - step

    search = Search(loss_at, slope=1.0)
    crossing = search.run(rtol=0.01)
    assert crossing.step == pytest.approx(3, rel=0.01) and not crossing.note


def test_arguments_are_checked():
    model, (x, y), _, _ = quadratic()
    with pytest.raises(ValueError, match="one tensor for each"):
        critical_sharpness(model, (x, y), update=[torch.zeros(2)])
    with pytest.raises(ValueError, match="rtol must be 0 or more"):
        critical_sharpness(model, (x, y), rtol=-1)
    with pytest.raises(ValueError, match="data is empty"):
        critical_sharpness(model, (x[:0], y[:0]))
    with pytest.raises(ValueError, match="two tensors"):
        critical_sharpness(model, x)
    with pytest.raises(ValueError, match="chunk"):
        critical_sharpness(model, (x, y), chunk=0)


def test_in_the_rows_of_a_watch():
    model, data = make("mlp", n=20)
    watch = Watch(model, None, data, data, measure="critical_sharpness")
    expected = critical_sharpness(model, data)
    assert watch.last["train/critical_sharpness"] == expected.value
    assert watch.last["val/critical_sharpness"] == expected.value
    assert watch.last["train/critical_sharpness_error"] == expected.error


def test_a_resumed_watch_searches_as_if_it_had_not_stopped():
    def rows(stop):
        torch.manual_seed(0)
        model, data = make("mlp", n=20)
        watch = Watch(model, None, data, measure="critical_sharpness", every=1)
        for step in range(3):
            with torch.no_grad():
                model[-1].weight.mul_(1.1)
            watch.step()
            if step == stop:
                state = watch.state_dict()
                watch = Watch(
                    model, None, data, measure="critical_sharpness", every=1, resume=state
                )
        return watch.last["train/critical_sharpness"]

    assert rows(stop=1) == rows(stop=None)
