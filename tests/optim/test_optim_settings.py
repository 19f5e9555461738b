"""Settings: what is out of range is refused by name, and each one acts."""

import pickle

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import batches, largest_difference, make_cnn, make_mlp, train
from torch import nn
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from toosure.config import RunConfig
from toosure.optim import ASAM, BSAM, CSAM, SAM, VASSO, BulkSGD, Muon
from toosure.train import Runtime
from toosure.train import train as train_run

NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: SAM(p, rho=NAN, lr=0.1), "rho must not be negative, and finite; got nan"),
        (lambda p: SAM(p, rho=float("inf"), lr=0.1), "rho must not"),
        (lambda p: SAM([{"params": p, "rho": -1}], lr=0.1), "rho must not"),
        (lambda p: SAM(p, lr=0.1, clip_norm=-1), "clip_norm must be positive; got -1"),
        (lambda p: SAM(p, lr=0.1, clip_norm=0.0), "clip_norm must be positive"),
        (lambda p: VASSO([{"params": p, "theta": 5}], lr=0.1), r"theta must be in \(0, 1\]; got 5"),
        (lambda p: VASSO(p, theta=NAN, lr=0.1), "theta must be in"),
        (lambda p: ASAM([{"params": p, "eta": -1}], lr=0.1), "eta must not be negative"),
        (lambda p: CSAM(p, gamma=NAN, lr=0.1), "gamma must not be negative"),
        (lambda p: CSAM([{"params": p, "gamma": 1.0}], lr=0.1), "gamma belongs to the loss"),
        (lambda p: BSAM(p, lr=-1, data_size=9), "lr must not be negative"),
        (lambda p: BSAM(p, betas=(2, 3), data_size=9), r"betas must be in \[0, 1\); got \(2, 3\)"),
        (lambda p: BSAM(p, betas=(0.9, 1.0), data_size=9), "betas must be in"),
        (lambda p: BSAM(p, sub_batches=0, data_size=9), "sub_batches must be a positive integer"),
        (lambda p: BSAM(p, sub_batches=2.5, data_size=9), "sub_batches must be a positive integer"),
        (lambda p: BSAM(p, prior_precision=-1, data_size=9), "prior_precision must not"),
        (lambda p: BSAM(p, damping=-1, data_size=9), "damping must not"),
        (lambda p: BSAM(p, data_size=NAN), "data_size must be positive"),
        (lambda p: Muon(p, lr=-1), "lr must not be negative"),
        (lambda p: Muon(p, momentum=1.0), "momentum must be in"),
        (lambda p: Muon(p, weight_decay=-1), "weight_decay must not"),
        (lambda p: Muon(p, ns_steps=0), "ns_steps must be a positive integer"),
        (lambda p: Muon(p, adamw_lr=-1), "lr must not|Invalid learning rate"),
        (lambda p: BulkSGD(p, lr=0.1, k=0, refresh=1.5), "refresh must be a positive integer"),
        (lambda p: SAM(p, base=SAM, lr=0.1), "SAM wants to run the closure itself"),
        (lambda p: SAM(p, base=BSAM, lr=0.1, data_size=9), "BSAM wants to run the closure"),
        (lambda p: SAM(p, base=torch.optim.LBFGS, lr=0.1), "LBFGS wants to run the closure"),
        (
            lambda p: SAM(p, base=torch.optim.SGD(p, lr=0.1)),
            r"base is a class.*base=torch\.optim\.SGD, lr=",
        ),
    ],
)
def test_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make(list(make_mlp().parameters()))


@pytest.mark.parametrize(
    ("method", "setting"),
    [(VASSO, {"theta": 5}), (ASAM, {"eta": -1}), (SAM, {"rho": NAN}), (CSAM, {"gamma": 1.0})],
)
def test_a_bad_group_is_not_added_later_either(method, setting):
    optimizer = method(make_mlp().parameters(), lr=0.1)
    with pytest.raises(ValueError, match=next(iter(setting))):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], **setting})
    assert len(optimizer.param_groups) == len(optimizer.base.param_groups) == 1


def test_a_base_with_a_rho_of_its_own_is_refused():
    """The groups are shared: SAM would climb by Adadelta's rho of .9."""
    with pytest.raises(ValueError, match="Adadelta has a rho of its own"):
        SAM(make_mlp().parameters(), torch.optim.Adadelta, rho=0.05, lr=0.1)


@pytest.mark.parametrize("base", ["sam", "bsam"])
def test_a_run_with_two_passes_in_two_passes_is_one_sentence(base, tmp_path):
    config = RunConfig(data="digits:train=60,val=20", optimizer=f"sam:base={base}", steps=1)
    with pytest.raises(ValueError, match="base must step with the gradients at hand"):
        train_run(config, tmp_path, Runtime("cpu"))


# Muon's settings, each away from its default, against torch's own.
SETTINGS = [
    {"weight_decay": 0.3},
    {"nesterov": False},
    {"ns_steps": 3},
    {"momentum": 0.5},
    {"adamw_weight_decay": 0.3},
    {"adamw_lr": 0.01, "adamw_betas": (0.5, 0.9), "adamw_eps": 1e-3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: next(iter(s)))
def test_muon_is_torchs_with_any_setting(settings):
    fast, slow = (make_mlp(dtype=torch.float32) for _ in range(2))
    data = list(batches("mlp", 5, dtype=torch.float32))
    train(fast, Muon(fast, lr=0.02, **settings), F.cross_entropy, data)
    ours = {k: v for k, v in settings.items() if not k.startswith("adamw_")}
    theirs = {k.removeprefix("adamw_"): v for k, v in settings.items() if k.startswith("adamw_")}
    muon = torch.optim.Muon([slow[0].weight], lr=0.02, **({"weight_decay": 0.0} | ours))
    rest = [p for p in slow.parameters() if p is not slow[0].weight]
    adamw = torch.optim.AdamW(rest, **({"lr": 3e-4, "weight_decay": 0.0} | theirs))
    for inputs, labels in data:
        slow.zero_grad()
        F.cross_entropy(slow(inputs), labels).backward()
        muon.step()
        adamw.step()
    assert largest_difference(fast, slow) == 0
    plain = make_mlp(dtype=torch.float32)
    train(plain, Muon(plain, lr=0.02), F.cross_entropy, data)
    assert largest_difference(fast, plain) > 0


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("cycler", [OneCycleLR, CyclicLR])
def test_cyclers_act_on_both_kinds_of_muons_groups(cycler, wrapped):
    model = make_mlp(dtype=torch.float32)
    optimizer = SAM(model, base=Muon, lr=0.02) if wrapped else Muon(model, lr=0.02)
    if cycler is OneCycleLR:
        schedule = OneCycleLR(optimizer, [0.02, 3e-4], total_steps=10)
    else:
        schedule = CyclicLR(optimizer, [0.01, 1e-4], [0.02, 3e-4], step_size_up=4)
    seen = []
    for data in batches("mlp", 5, dtype=torch.float32):
        train(model, optimizer, F.cross_entropy, [data])
        hidden, rest = optimizer.param_groups
        assert rest["betas"] == (rest["momentum"], 0.999)
        assert rest["momentum"] == hidden["momentum"]
        seen.append((hidden["momentum"], hidden["lr"], rest["lr"]))
        schedule.step()
    assert len(set(seen)) == 5


def test_without_a_cycler_muons_betas_are_its_own():
    model = make_mlp(dtype=torch.float32)
    optimizer = Muon(model, momentum=0.7, adamw_betas=(0.5, 0.9))
    train(model, optimizer, F.cross_entropy, batches("mlp", 1, dtype=torch.float32))
    assert optimizer.param_groups[1]["betas"] == (0.5, 0.9)


def test_muon_takes_sparse_gradients():
    nets = [
        nn.Sequential(nn.Embedding(10, 4, sparse=sparse), nn.Linear(4, 4))
        for sparse in (True, False)
    ]
    nets[1].load_state_dict(nets[0].state_dict())
    index, labels = torch.tensor([1, 3, 3, 7]), torch.tensor([0, 1, 2, 3])
    for net in nets:
        groups = [
            {"params": net[0].parameters(), "muon": True},
            {"params": net[1].parameters(), "muon": False},
        ]
        train(net, Muon(groups, fp32=True), F.cross_entropy, [(index, labels)] * 2)
        rest = [{"params": net.parameters(), "muon": False}]
        train(net, Muon(rest), F.cross_entropy, [(index, labels)])
    assert largest_difference(*nets) < 1e-6


def test_clipping_takes_sparse_gradients():
    nets = [nn.Embedding(10, 4, sparse=sparse).double() for sparse in (True, False)]
    nets[1].load_state_dict(nets[0].state_dict())
    index, labels = torch.tensor([1, 3, 3, 7]), torch.tensor([0, 1, 2, 3])
    for net in nets:
        optimizer = SAM(net.parameters(), rho=0.5, lr=0.1, clip_norm=0.01)
        before = net.weight.detach().clone()
        train(net, optimizer, F.cross_entropy, [(index, labels)])
        moved = (net.weight - before).norm().item()
        assert moved == pytest.approx(0.1 * 0.01, rel=1e-3)
    assert largest_difference(*nets) < 1e-12
    assert nets[0].weight.grad.is_sparse


MAKE = {
    "sam": lambda m: SAM(m.parameters(), lr=0.1),
    "sam of muon": lambda m: SAM(m, base=Muon, lr=0.1),
    "bsam": lambda m: BSAM(m.parameters(), data_size=100),
    "muon": lambda m: Muon(m),
    "bulk": lambda m: BulkSGD(m.parameters(), lr=0.1, k=0),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_hooks_on_every_optimizer_run_once_a_step(make):
    model, calls = make_mlp(dtype=torch.float32), []
    for method in (torch.optim.SGD, torch.optim.AdamW):
        method(model.parameters())  # torch wraps a class's step when it is first made
    optimizer = make(model)
    handles = [
        register_optimizer_step_pre_hook(lambda o, *_: calls.append(("before", o))),
        register_optimizer_step_post_hook(lambda o, *_: calls.append(("after", o))),
    ]
    try:
        train(model, optimizer, F.cross_entropy, batches("mlp", 2, dtype=torch.float32))
    finally:
        for handle in handles:
            handle.remove()
    assert calls == [("before", optimizer), ("after", optimizer)] * 2


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_group_says_whether_asam_adapts_it(adaptive):
    """It overrules the names: all tensors by their size, or none."""
    model, points = make_cnn(), []
    groups = [{"params": list(model.named_parameters()), "adaptive": adaptive}]
    optimizer = ASAM(groups, rho=0.5, eta=0.01, lr=0.1)
    inputs, labels = next(batches("cnn"))

    def closure():
        points.append([p.detach().clone() for p in model.parameters()])
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    twin = make_cnn()
    grads = torch.autograd.grad(F.cross_entropy(twin(inputs), labels), list(twin.parameters()))
    sizes = [p.abs() + 0.01 if adaptive else torch.ones_like(p) for p in twin.parameters()]
    norm = torch.sqrt(sum(((t * g) ** 2).sum() for t, g in zip(sizes, grads, strict=True)))
    optimizer.step(closure)
    for before, after, t, g in zip(*points, sizes, grads, strict=True):
        assert torch.allclose(after - before, 0.5 * t**2 * g / norm, atol=1e-12)


def quadratics(*weights):
    def closure():
        loss = sum(0.5 * (w**2).sum() for w in weights)
        loss.backward()
        return loss

    return closure


def test_vassos_average_of_a_parameter_in_some_micro_batches():
    """A micro-batch without it has gradient zero: d = (1 - theta) d + theta mean(g)."""
    a, b = (nn.Parameter(torch.tensor([value], dtype=torch.float64)) for value in (2.0, -3.0))
    optimizer = VASSO([a, b], rho=1e-9, theta=0.4, lr=0.0)
    expected = {a: None, b: None}
    for _ in range(3):
        optimizer.step([quadratics(a, b), quadratics(a), quadratics(a, b)], weights=[1, 2, 1])
        for p, share in ((a, 1.0), (b, 0.5)):
            mean = share * p.item()
            past = expected[p]
            expected[p] = mean if past is None else 0.6 * past + 0.4 * mean
            found = optimizer.state[p]["direction"].item()
            assert found == pytest.approx(expected[p], rel=1e-6)


def test_vasso_keeps_the_average_of_what_comes_after_a_late_parameter():
    """Only the second pass uses `a`: it has no direction, and `b` behind it has one."""
    a, b = (nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    optimizer = VASSO([a, b], rho=0.1, theta=0.4, lr=0.1)
    passes = iter([quadratics(b), quadratics(a, b)])
    optimizer.step(lambda: next(passes)())
    assert a.item() < 1
    assert "direction" in optimizer.state[b]
    assert "direction" not in optimizer.state.get(a, {})


def test_settings_survive_a_pickle():
    optimizer = SAM(make_mlp().parameters(), lr=0.1, clip_norm=2.0)
    assert pickle.loads(pickle.dumps(optimizer)).clip_norm == 2.0


def test_muon_leaves_the_input_layer_to_adamw_where_asked():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    by_default = Muon(model)
    assert [len(group["params"]) for group in by_default.param_groups] == [2, 4]
    optimizer = Muon(model, input_layer=False)
    hidden, rest = optimizer.param_groups
    assert hidden["params"] == [model[1].weight] and rest["params"][0] is model[0].weight

    # Where the input layer was the only hidden matrix, AdamW has everything.
    small = Muon(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), input_layer=False)
    assert [group["muon"] for group in small.param_groups] == [False]


@pytest.mark.parametrize("kind", [SAM, ASAM, VASSO, CSAM])
def test_what_climbs_does_not_maximize(kind):
    with pytest.raises(ValueError, match="negate the loss"):
        kind([nn.Parameter(torch.ones(2))], rho=0.1, lr=0.1, maximize=True)


def test_a_base_is_a_class():
    with pytest.raises(ValueError, match=r"base is a class of optimizer, such as torch\.optim"):
        SAM([nn.Parameter(torch.ones(2))], base="sgd", lr=0.1)
