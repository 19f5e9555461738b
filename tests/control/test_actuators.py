"""Actuators: the step takes what was set, in numbers on a CPU and through tensors."""

import pickle

import pytest
import torch
from torch import nn

from toosure.control import CSAMGamma, FocalGamma, Joint, Rho
from toosure.control.actuators import MAX_GAMMA, make_actuator, stored
from toosure.losses import CSAMLoss, DualFocalLoss, FocalLoss
from toosure.optim import ASAM, CSAM, SAM, VASSO
from toosure.optim.passes import climb_, climb_without_waiting_

CPU = torch.device("cpu")


def network():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


X = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(12) % 3


def weights_after(model, optimizer, criterion=None, steps=2):
    criterion = criterion or nn.CrossEntropyLoss()

    def closure():
        loss = criterion(model(X), Y)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return model.weight.detach().clone()


@pytest.mark.parametrize("kind", [SAM, ASAM, VASSO, CSAM])
def test_a_steered_rho_is_that_of_an_optimizer_built_with_it(kind):
    model, other = network(), network()
    steered = kind(model.parameters(), rho=0.25, lr=0.1)
    actuator = Rho(steered)
    actuator.set_factor(2.0)
    assert actuator.values() == {"rho": 0.5}
    built = kind(other.parameters(), rho=0.5, lr=0.1)
    criteria = [
        o.criterion(nn.CrossEntropyLoss()) if kind is CSAM else None for o in (steered, built)
    ]
    assert torch.equal(
        weights_after(model, steered, criteria[0]), weights_after(other, built, criteria[1])
    )


def test_groups_keep_their_proportion():
    model = network()
    groups = [{"params": [model.bias], "rho": 0.0}, {"params": [model.weight], "rho": 0.1}]
    optimizer = SAM(groups, lr=0.1)
    rho = Rho(optimizer)
    rho.set_factor(3.0)
    assert [group["rho"] for group in optimizer.param_groups] == [0.0, pytest.approx(0.3)]
    assert rho.values() == {"rho": pytest.approx(0.3)}  # of the first group that moves


def test_a_steered_gamma_reaches_criteria_made_before_and_after():
    model, other = network(), network()
    steered = CSAM(model.parameters(), rho=0.1, gamma=0.5, lr=0.1)
    before = steered.criterion(nn.CrossEntropyLoss())
    actuator = CSAMGamma(steered)
    actuator.set_factor(4.0)
    built = CSAM(other.parameters(), rho=0.1, gamma=2.0, lr=0.1)
    expected = weights_after(other, built, built.criterion(nn.CrossEntropyLoss()))
    assert torch.equal(weights_after(model, steered, before), expected)

    with torch.no_grad():
        model.load_state_dict(network().state_dict())
    after = steered.criterion(nn.CrossEntropyLoss())
    assert torch.equal(weights_after(model, steered, after), expected)
    assert pickle.loads(pickle.dumps(steered)).gamma == 2.0


@pytest.mark.parametrize("inner", [nn.CrossEntropyLoss(), FocalLoss(gamma=1.0)])
@pytest.mark.parametrize("gamma", [1.0, 1.7])
def test_a_gamma_in_a_tensor_is_the_same_loss_and_gradient(inner, gamma):
    results = []
    for value in (gamma, torch.tensor(gamma)):
        logits = (3 * X[:, :3]).clone().requires_grad_()
        loss = CSAMLoss(inner)
        loss.gamma = value
        number = loss(logits, Y)
        number.backward()
        results.append((number.detach(), logits.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keep", [False, True])
def test_a_radius_in_a_tensor_climbs_as_far(dtype, keep):
    """What a GPU runs, here on the CPU: float32 by the fused call, float64 without it."""
    results = []
    for climb, radius in ((climb_, 0.3), (climb_without_waiting_, torch.tensor(0.3))):
        weight = torch.ones(5, dtype=dtype)
        direction = torch.arange(5, dtype=dtype)
        climb([weight], [direction], radius, direction.norm(), keep)
        results.append(weight)
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-6)


def test_a_tensor_is_changed_in_place_so_that_a_graph_reads_it():
    kept = torch.tensor(0.1)
    assert stored(kept, 0.4, CPU) is kept
    assert float(kept) == pytest.approx(0.4)
    assert stored(0.1, 0.4, CPU) == 0.4

    model = network()
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.1)
    optimizer.param_groups[0]["rho"] = kept
    Rho(optimizer).set_factor(2.0)
    assert optimizer.param_groups[0]["rho"] is kept
    assert torch.isfinite(weights_after(model, optimizer)).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("kind", "word"), [(CSAM, "rho"), (CSAM, "both"), (ASAM, "rho")])
def test_on_a_gpu_a_replayed_step_follows_the_actuator(kind, word):
    model = network().cuda()
    optimizer = kind(model.parameters(), rho=0.1, lr=0.1)
    criterion = nn.CrossEntropyLoss()
    if kind is CSAM:
        criterion = optimizer.criterion(criterion)
    actuator = make_actuator(word, optimizer)
    x, y = X.cuda(), Y.cuda()

    def closure():
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.step(closure)
    torch.cuda.synchronize()
    start = {k: v.clone() for k, v in model.state_dict().items()}
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        optimizer.step(closure)

    for factor in (1.0, 5.0):
        actuator.set_factor(factor)
        model.load_state_dict(start)
        graph.replay()
        replayed = model.weight.detach().clone()
        model.load_state_dict(start)
        optimizer.step(closure)
        torch.testing.assert_close(replayed, model.weight.detach())


def test_a_steered_focal_gamma():
    loss = nn.Sequential(FocalLoss(gamma=1.0), DualFocalLoss(gamma=2.0))
    actuator = FocalGamma(loss, CPU)
    actuator.set_factor(2.0)
    assert [part.gamma for part in loss] == [2.0, 4.0]
    assert actuator.highest() == MAX_GAMMA / 2
    logits = X[:, :3]
    assert loss[0](logits, Y) == FocalLoss(gamma=2.0)(logits, Y)


def test_joint_actuators_stop_each_at_its_own_bound():
    optimizer = CSAM(network().parameters(), rho=0.1, gamma=1.0, lr=0.1)
    both = make_actuator("both", optimizer)
    assert isinstance(both, Joint)
    both.set_factor(20.0)
    assert both.values() == {"rho": pytest.approx(2.0), "gamma": MAX_GAMMA}
    assert both.state_dict() == {"rho": [0.1], "gamma": [1.0]}
    both.load_state_dict({"rho": [0.2], "gamma": [2.0]})
    both.set_factor(1.0)
    assert both.values() == {"rho": 0.2, "gamma": 2.0}


def test_the_radii_of_two_optimizers_keep_their_own_starts():
    parts = [SAM(network().parameters(), rho=rho, lr=0.1) for rho in (0.05, 0.5)]
    both = Joint(*map(Rho, parts))
    both.set_factor(2.0)
    assert both.values() == {"rho": 0.1, "rho_2": 1.0}
    assert both.state_dict() == {"rho": [0.05], "rho_2": [0.5]}

    others = [SAM(network().parameters(), rho=1.0, lr=0.1) for _ in parts]
    again = Joint(*map(Rho, others))
    again.load_state_dict(both.state_dict())
    again.set_factor(2.0)
    assert [optimizer.param_groups[0]["rho"] for optimizer in others] == [0.1, 1.0]


def test_pairs_of_radii_have_four_names():
    pair = [Joint(*(Rho(SAM(network().parameters(), rho=rho, lr=0.1)) for rho in rhos))
            for rhos in ((0.05, 0.5), (0.1, 1.0))]  # fmt: skip
    assert list(Joint(*pair).values().values()) == [0.05, 0.5, 0.1, 1.0]


def test_what_cannot_be_steered_is_refused():
    sgd = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="SGD has no radius rho"):
        make_actuator("rho", sgd)
    with pytest.raises(ValueError, match="rho of Adadelta is the decay of an average"):
        make_actuator("rho", torch.optim.Adadelta(network().parameters()))
    with pytest.raises(ValueError, match="SGD has no gamma"):
        make_actuator("gamma", sgd)
    with pytest.raises(ValueError, match="take the loss focal"):
        make_actuator("focal", sgd, nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="start it above 0"):
        make_actuator("rho", SAM(network().parameters(), rho=0.0, lr=0.1))
    with pytest.raises(ValueError, match="gamma at 10 or below, but it starts at 12"):
        make_actuator("gamma", CSAM(network().parameters(), gamma=12.0, lr=0.1))
    with pytest.raises(ValueError, match="gamma at 10 or below, but it starts at 20"):
        make_actuator("focal", sgd, FocalLoss(gamma=20.0))
    with pytest.raises(ValueError, match="one per example"):
        make_actuator("focal", sgd, FocalLoss(gamma=torch.ones(3)))
