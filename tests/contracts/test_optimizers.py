"""What every optimizer in the table must do; a new one is tested the moment it is listed."""

import io
import pickle
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure.optim import OPTIMIZERS, SAM
from toosure.words import find
from toosure.words.tables import TABLES


class Still:
    """A tracker whose top directions are the first coordinates."""

    def __init__(self, size):
        self.size = size

    def top(self, matrix, k):
        vectors = torch.eye(self.size, dtype=torch.float64)[:k]
        return SimpleNamespace(values=torch.ones(k), vectors=vectors, converged=True)


def size_of(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


MAKE = {
    "sgd": lambda model: {"lr": 0.05, "momentum": 0.9},
    "gd": lambda model: {"lr": 0.05},
    "adamw": lambda model: {"lr": 0.01},
    "sam": lambda model: {"base": torch.optim.AdamW, "lr": 0.01},
    "csam": lambda model: {"lr": 0.05, "momentum": 0.9},
    "asam": lambda model: {"lr": 0.05, "momentum": 0.9},
    "vasso": lambda model: {"base": torch.optim.AdamW, "lr": 0.01, "theta": 0.5},
    "bsam": lambda model: {"lr": 0.05, "data_size": 1000},
    "bulksgd": lambda model: {
        "lr": 0.05,
        "k": 2,
        "tracker": Still(size_of(model)),
        "refresh": 2,
        "momentum": 0.9,
    },
    "muon": lambda model: {"lr": 0.02},
}


def make(name, model):
    return OPTIMIZERS[name](model.parameters(), **MAKE[name](model))


class Net(nn.Module):
    """A network with BatchNorm, and a branch that is not always used."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8))
        self.spare = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs, spare=True):
        hidden = self.body(inputs)
        return self.head(self.spare(hidden) if spare else hidden)


def net(seed=0):
    torch.manual_seed(seed)
    return Net().double()


def steps(model, optimizer, first, last, forward=None):
    forward = model if forward is None else forward
    loss_of = optimizer.criterion() if hasattr(optimizer, "criterion") else nn.CrossEntropyLoss()
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(16, 5, generator=generator, dtype=torch.float64)
        labels = torch.randint(3, (16,), generator=generator)

        def closure(inputs=inputs, labels=labels, spare=step != 1):
            optimizer.zero_grad()
            loss = loss_of(forward(inputs, spare), labels)
            loss.backward()
            return loss

        optimizer.step(closure)


def same(one, two):
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


every = pytest.mark.parametrize("name", OPTIMIZERS)


def test_every_method_has_a_case():
    assert MAKE.keys() == OPTIMIZERS.keys()


def test_the_table_and_the_words_agree():
    assert list(OPTIMIZERS) == list(TABLES["optimizer"])
    assert all(find("optimizer", name).target is kind for name, kind in OPTIMIZERS.items())


@every
def test_declared_traits_are_those_of_the_signature(name):
    kind, method = OPTIMIZERS[name], find("optimizer", name)
    assert getattr(kind, "passes_arguments_to", "") == method.passes_to
    assert getattr(kind, "needs_tracker", False) == ("tracker" in method.parameters)
    assert getattr(kind, "wraps_criterion", False) == hasattr(kind, "criterion")


@every
def test_lowers_a_quadratic(name):
    torch.manual_seed(0)
    model = nn.Linear(6, 6).double()
    target = torch.randn(6, 6, dtype=torch.float64)
    optimizer = make(name, model)
    if hasattr(optimizer, "criterion"):
        optimizer.gamma = 0.0  # there are no labels for Eq. 4, which would be missed

    def value():
        return ((model.weight - target) ** 2).sum() + (model.bias**2).sum()

    def closure():
        optimizer.zero_grad()
        loss = value()
        loss.backward()
        return loss

    before = value().item()
    values = [optimizer.step(closure).item() for _ in range(100)]
    assert values[0] == pytest.approx(before, rel=0.05)  # bSAM looks at a sample
    assert value().item() < 0.97 * before
    assert all(torch.isfinite(p).all() for p in model.parameters())


@every
def test_resumes_bit_equal(name):
    whole, model = net(), net()
    steps(whole, make(name, whole), 0, 8)
    optimizer = make(name, model)
    steps(model, optimizer, 0, 5)
    disk = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], disk)
    disk.seek(0)
    weights, state = torch.load(disk, weights_only=True)
    fresh = net(seed=9)
    fresh.load_state_dict(weights)
    again = make(name, fresh)
    again.load_state_dict(state)
    steps(fresh, again, 5, 8)
    assert same(whole, fresh)


@every
def test_survives_parameters_without_gradients(name):
    """Step 1 leaves `spare` out; a frozen layer never has a gradient."""
    model = net()
    for p in model.body[0].parameters():
        p.requires_grad_(False)
    frozen = deepcopy(model.body[0])
    steps(model, make(name, model), 0, 4)
    assert same(frozen, model.body[0])
    assert all(torch.isfinite(p).all() for p in model.parameters())


@every
def test_works_under_compile(name):
    torch._dynamo.reset()
    model, twin = net(), net()
    settings = MAKE[name](model)
    if issubclass(OPTIMIZERS[name], SAM):
        settings["model"] = model
    optimizer = OPTIMIZERS[name](model.parameters(), **settings)
    steps(model, optimizer, 0, 4, forward=torch.compile(model, backend="aot_eager"))
    steps(twin, make(name, twin), 0, 4)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.allclose(a.double(), b.double(), atol=1e-8)
    assert model.body[1].num_batches_tracked == 4


@every
def test_pickles(name):
    model = net()
    optimizer = make(name, model)
    steps(model, optimizer, 0, 3)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # it patches step on the instance
    copy, again = pickle.loads(pickle.dumps((model, optimizer)))
    steps(model, optimizer, 3, 6)
    steps(copy, again, 3, 6)
    assert same(model, copy)


@every
def test_hooks_run_once(name):
    model, calls = net(), []
    torch.optim.SGD(model.parameters())  # torch wraps a class's step when it is first made
    optimizer = make(name, model)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    steps(model, optimizer, 0, 2)
    assert calls == ["before", "after"] * 2


@every
def test_schedulers_act(name):
    model = net()
    optimizer = make(name, model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    before = [p.detach().clone() for p in model.parameters()]
    steps(model, optimizer, 0, 2)
    scheduler.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@every
def test_takes_named_parameters_and_repr(name):
    model = net()
    optimizer = OPTIMIZERS[name](model.named_parameters(), **MAKE[name](model))
    steps(model, optimizer, 0, 1)
    assert "lr" in repr(optimizer)


def test_float32_on_the_default_device():
    inputs, labels = torch.randn(8, 5), torch.arange(8) % 3
    for name in OPTIMIZERS:
        model = Net()
        optimizer = make(name, model)
        loss_of = optimizer.criterion() if hasattr(optimizer, "criterion") else F.cross_entropy

        def closure(optimizer=optimizer, loss_of=loss_of, model=model):
            optimizer.zero_grad()
            loss = loss_of(model(inputs), labels)
            loss.backward()
            return loss

        assert torch.isfinite(optimizer.step(closure))
