"""Graph replay: the same run on a GPU; and here, its bookkeeping with a stand-in for the graph."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map_only

from toosure.config import RunConfig
from toosure.data import digits
from toosure.models import mlp
from toosure.objectives import CalMO, GammaNet, MetaSmoothing, Plain
from toosure.optim import BSAM, CSAM, SAM, BulkSGD, Muon
from toosure.train import Runtime, train
from toosure.train.batches import Batches
from toosure.train.checkpoint import load_checkpoint
from toosure.train.graph import WARM_UP, GraphStep
from toosure.train.steps import Step, load_optimizer, set_rates

DATA = {"data": "digits:train=100,val=60", "batch": 32}


class StandIn(GraphStep):
    """Runs again, on the tensors of the capture, what a graph would replay."""

    def eagerly(self, batch, lr):
        return self.step(batch, lr)

    def capture(self, prepared):
        kept = tree_map_only(torch.Tensor, torch.clone, prepared)
        kept = prepared if self.fixed else kept
        self.leaves = tree_flatten(kept)[0]

        def replay():
            self.loss = self.step.descend(kept)

        self.graph = SimpleNamespace(replay=replay)


def trained(kind, make, size=32, schedule=None, steps=9):
    """Train by `kind`, and return the weights and losses."""
    data = digits(train=100, val=60)
    torch.manual_seed(0)
    net = mlp(inputs=64, classes=10, width=16)
    optimizer = make(net)
    loss = nn.CrossEntropyLoss()
    if hasattr(optimizer, "criterion"):
        loss = optimizer.criterion(loss)
    batches = Batches(data, size, seed=0)
    step = kind(Step(net, Plain(loss), optimizer), batches)
    rates, losses = [group["lr"] for group in optimizer.param_groups], []
    for number in range(steps):
        set_rates(optimizer, rates, 1 - number / steps if schedule else 1.0)
        losses.append(float(step(batches.draw(number), 0.0)))
    return [p.detach().clone() for p in net.parameters()], losses


def graphed(varies):
    return lambda step, batches: StandIn(step, varies, fixed=batches.full)


def plain(step, batches):
    return step


OPTIMIZERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
    "sam": lambda net: SAM(net.parameters(), rho=0.1, lr=0.1, momentum=0.9),
    "csam": lambda net: CSAM(net.parameters(), rho=0.1, lr=0.1),
    "muon": lambda net: Muon(net, lr=0.02),
}


@pytest.mark.parametrize("size", [32, None])
@pytest.mark.parametrize("name", ["sgd", "sam", "csam"])
def test_bookkeeping_changes_no_bit(name, size):
    one, losses = trained(plain, OPTIMIZERS[name], size)
    two, replayed = trained(graphed(False), OPTIMIZERS[name], size)
    assert losses == replayed and len(set(losses)) == len(losses) > WARM_UP + 2
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_rate_that_varies_is_read_from_a_tensor():
    one, _ = trained(plain, OPTIMIZERS["sam"], schedule=True)
    two, _ = trained(graphed(True), OPTIMIZERS["sam"], schedule=True)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, two, strict=True))
    fixed, _ = trained(plain, OPTIMIZERS["sam"])
    assert not all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, fixed, strict=True))


def test_the_noise_of_bsam_is_seeded_before_each_replay(monkeypatch):
    """While a graph is recorded, and in its replays, the step itself seeds nothing."""

    class Recorded(StandIn):
        def capture(self, prepared):
            super().capture(prepared)
            monkeypatch.setattr("toosure.optim.bsam.being_recorded", lambda _: True)
            self.draws = True

    def make(net):
        return BSAM(net.parameters(), lr=0.1, data_size=100, sub_batches=3)

    one, losses = trained(plain, make, schedule=True)
    two, replayed = trained(lambda step, _: Recorded(step, True, False), make, schedule=True)
    assert losses == pytest.approx(replayed, rel=1e-5) and len(set(losses)) == len(losses)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    "objective",
    [
        GammaNet(meta=20),
        GammaNet(meta=20, feed="hidden.0", scope="full"),
        GammaNet(meta=20, feed="noise"),
        GammaNet(meta=20, every=3),
        MetaSmoothing(meta=20, virtual_lr=0.3),
        CalMO(),
    ],
    ids=["gamma-net", "full", "noise", "every third", "smoothing", "calmo"],
)
def test_what_an_objective_draws_is_new_at_every_step(objective):
    ends = []
    for kind in (Step, lambda *parts: StandIn(Step(*parts), False, False)):
        torch.manual_seed(0)
        net, own = mlp(inputs=64, classes=10, width=16), copy.deepcopy(objective)
        data = digits(train=100, val=60)
        data = own.setup(net, data) or data if hasattr(own, "setup") else data
        batches = Batches(data, 32, seed=0)
        step = kind(net, own, OPTIMIZERS["sgd"](net))
        losses = [float(step(batches.draw(number), 0.1 + number)) for number in range(9)]
        ends.append((losses, *(p.detach().clone() for p in net.parameters()), own.state_dict()))
    assert tree_all(ends[0], ends[1]) and len(set(ends[0][0])) == 9


def tree_all(one, two):
    """Whether two trees hold the same numbers."""
    (a, shape), (b, other) = tree_flatten(one), tree_flatten(two)
    if shape != other:
        return False
    pairs = zip(a, b, strict=True)
    return all(torch.equal(u, v) if isinstance(u, torch.Tensor) else u == v for u, v in pairs)


def test_weights_are_seen_to_change():
    """What a graph does behind autograd's back must still show in the version counters."""
    data = digits(train=100, val=60)
    net = mlp(inputs=64, classes=10, width=16)
    step = Step(net, Plain(nn.CrossEntropyLoss()), OPTIMIZERS["sgd"](net))
    graph, batches = StandIn(step, False, False), Batches(data, 32, seed=0)
    for number in range(WARM_UP + 1):
        graph(batches.draw(number), 0.1)
    graph.graph = SimpleNamespace(replay=lambda: None)  # a real one leaves the counters alone
    before = [p._version for p in net.parameters()]
    graph(batches.draw(0), 0.1)
    assert all(p._version > v for p, v in zip(net.parameters(), before, strict=True))


def test_what_cannot_be_a_graph_says_so():
    net = mlp(inputs=64, classes=10, width=16)
    objective = Plain(nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="BulkSGD solves"):
        GraphStep(Step(net, objective, BulkSGD(net.parameters(), lr=0.1, k=0)), False, False)
    with pytest.raises(ValueError, match="use bf16 with graph"):
        GraphStep(Step(net, objective, OPTIMIZERS["sgd"](net), "fp16"), False, False)
    with pytest.raises(ValueError, match="Muon reads its learning rate on the host"):
        trained(graphed(True), OPTIMIZERS["muon"])


def test_numbers_outside_tensors_are_an_error():
    class Mixing(Plain):
        def prepare(self, model, batch):
            return batch, float(torch.rand(()))

        def forward(self, model, prepared):
            return super().forward(model, prepared[0]) * prepared[1]

    net = mlp(inputs=64, classes=10, width=16)
    step = Step(net, Mixing(nn.CrossEntropyLoss()), OPTIMIZERS["sgd"](net))
    graph, batches = StandIn(step, False, False), Batches(digits(train=100, val=60), 32, seed=0)
    for number in range(WARM_UP + 1):
        graph(batches.draw(number), 0.1)
    with pytest.raises(ValueError, match="a CUDA graph replays tensors only"):
        graph(batches.draw(WARM_UP + 1), 0.1)


def test_a_state_saved_under_a_graph_loads_without_one():
    net = mlp(inputs=64, classes=10, width=16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group |= {"lr": torch.tensor(0.005), "capturable": True, "fused": True, "foreach": False}
    fresh = torch.optim.AdamW(net.parameters(), lr=0.01)
    load_optimizer(fresh, state)
    (group,) = fresh.param_groups
    assert group["lr"] == pytest.approx(0.005) and isinstance(group["lr"], float)
    assert not group["capturable"] and not group["fused"] and group["foreach"] is None
    fresh.step()


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize(
    "optimizer", ["sgd:lr=0.1,momentum=0.9", "gd:lr=0.5", "adamw", "csam:lr=0.1"]
)
def test_graph_replay_is_the_same_run(optimizer, schedule, tmp_path):
    config = RunConfig(**DATA, optimizer=optimizer, schedule=schedule, steps=30, every=10)
    one = train(config, tmp_path / "a", Runtime("cuda"))
    two = train(config, tmp_path / "b", Runtime("cuda", graph=True))
    for key in ("train/loss", "val/nll", "train/gn_sharpness"):
        assert two.columns[key] == pytest.approx(one.columns[key], rel=2e-3)


@cuda
@pytest.mark.parametrize(
    "optimizer",
    ["muon:lr=0.02", "sam:base=adamw,lr=0.01", "vasso:lr=0.1", "bsam:lr=0.1,sub_batches=3"],
)
def test_graph_replay_of_the_others(optimizer, tmp_path):
    config = RunConfig(**DATA, optimizer=optimizer, steps=30, every=10)
    one = train(config, tmp_path / "a", Runtime("cuda"))
    two = train(config, tmp_path / "b", Runtime("cuda", graph=True))
    assert two.columns["train/loss"] == pytest.approx(one.columns["train/loss"], rel=2e-2)


@cuda
@pytest.mark.parametrize(
    "objective",
    ["gamma_net", "gamma_net:scope=full,feed=noise", "gamma_net:scope=full", "meta_smoothing"],
)
def test_graph_replay_of_two_loops(objective, tmp_path):
    """The rate changes on the way, and what a graph replays must follow it."""
    config = RunConfig(
        **DATA, objective=objective, optimizer="sgd:lr=0.1", schedule="cosine", steps=30, every=10
    )
    one = train(config, tmp_path / "a", Runtime("cuda"))
    two = train(config, tmp_path / "b", Runtime("cuda", graph=True))
    for key in ("train/loss", "objective/meta_gradient"):
        assert two.columns[key][1:] == pytest.approx(one.columns[key][1:], rel=2e-2)


@cuda
def test_a_resnet_under_a_graph_moves_its_statistics_once(tmp_path):
    config = RunConfig(
        **DATA, model="own_model:noisy", optimizer="sam:lr=0.1", steps=30, every=30, measure=()
    )
    run = train(config, tmp_path, Runtime("cuda", graph=True))
    assert load_checkpoint(run.path)[0]["model"]["2.num_batches_tracked"] == 30


@cuda
def test_rows_looked_at_beside_the_steps_are_the_same_and_move_nothing(tmp_path, monkeypatch):
    """Trackers and training replay at the same time, and share no memory."""
    wide = {"data": "digits", "model": "mlp:width=1024", "optimizer": "gd:lr=0.1"}
    config = RunConfig(**wide, steps=400, every=5)
    runtime = Runtime("cuda", graph=True)
    beside = train(config, tmp_path / "beside", runtime)
    plain = RunConfig(**wide, steps=400, at=(0, 400), measure=())
    alone = train(plain, tmp_path / "alone", runtime)
    monkeypatch.setattr("toosure.watch.watch.copy_weights", lambda *_: None)
    after = train(config, tmp_path / "after", runtime)
    weights = [load_checkpoint(run.path)[0]["model"] for run in (beside, after, alone)]
    for name, weight in weights[0].items():
        assert all(torch.equal(weight, other[name]) for other in weights[1:])
    for one, other in zip(beside.rows, after.rows, strict=True):
        assert {k: v for k, v in one.items() if "seconds" not in k} == {
            k: v for k, v in other.items() if "seconds" not in k
        }
