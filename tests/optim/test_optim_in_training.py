"""What `toosure train` gives each optimizer: names, the right head, the Hessian it descends."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import dense_hessian
from torch import nn

from toosure.config import RunConfig
from toosure.losses import MMCELoss, SKCELoss
from toosure.models import vit
from toosure.objectives import as_objective
from toosure.objectives.contract import criterion_of
from toosure.optim import ASAM, Muon
from toosure.processes import ALONE
from toosure.train import Runtime, train
from toosure.train.build import build_optimizer, objective_parameters
from toosure.train.checkpoint import load_checkpoint
from toosure.train.steps import load_optimizer

SMALL = {"data": "digits:train=60,val=20", "batch": 20, "steps": 1, "every": 1}


class Split(SimpleNamespace):
    def __len__(self):
        return len(self.x)


class Small(nn.Module):
    """A body with biases, perhaps BatchNorm or Dropout, and a head."""

    def __init__(self, middle=None):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 6)
        self.middle = middle or nn.Identity()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.middle(self.body(x))))


def built(optimizer, model, criterion=None):
    """The optimizer of a run, and the examples."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (40,), generator=generator)
    data = SimpleNamespace(train=Split(x=x, y=y), examples=40)
    criterion = criterion or nn.CrossEntropyLoss()
    objective = as_objective(criterion_of(criterion))
    config = RunConfig(optimizer=optimizer, steps=1)
    return build_optimizer(config, model, objective, criterion, data, ALONE), x, y


def test_asam_in_training_is_the_authors():
    """Biases are not adapted: the perturbation is that of named parameters."""
    model, twin = Small().double(), Small().double()
    optimizer, x, y = built("asam:lr=0.1,rho=0.5", model)
    named = ASAM(twin.named_parameters(), lr=0.1, rho=0.5)
    for net, each in ((model, optimizer), (twin, named)):

        def closure(net=net):
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        each.step(closure)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
    nameless = Small().double()
    closure = lambda: F.cross_entropy(nameless(x), y).backward()  # noqa: E731
    ASAM(nameless.parameters(), lr=0.1, rho=0.5).step(closure)
    assert not torch.equal(nameless.head.bias, model.head.bias)


def test_a_checkpoint_without_names_still_loads():
    model = Small().double()
    optimizer, _, _ = built("asam:lr=0.1,momentum=0.9", model)
    names = optimizer.param_groups[0]["param_names"]
    assert names == [name for name, _ in model.named_parameters()]
    old = ASAM(model.parameters(), lr=0.2, momentum=0.9)
    load_optimizer(optimizer, old.state_dict())
    assert optimizer.param_groups[0]["param_names"] == names
    assert optimizer.param_groups[0]["lr"] == 0.2


@pytest.mark.parametrize("optimizer", ["muon:lr=0.02", "sam:base=muon,lr=0.02"])
def test_an_objectives_matrices_do_not_make_the_head_a_hidden_one(optimizer, tmp_path):
    config = RunConfig(**SMALL, model="mlp:width=16", objective="balcal", optimizer=optimizer)
    run = train(config, tmp_path, Runtime("cpu"))
    muon, adamw = load_checkpoint(run.path)[0]["optimizer"]["param_groups"]
    assert (muon["muon"], adamw["muon"]) == (True, False)
    assert "head.weight" in adamw["param_names"]
    hidden = ["objective.adaptor.down.weight", "objective.adaptor.up.weight"]
    assert muon["param_names"][-2:] == hidden


def test_tokens_and_positions_are_no_hidden_matrices():
    model = vit((3, 16, 16), 10, width=24, depth=1, heads=2)
    hidden, rest = Muon(model).param_groups
    assert {"cls_token", "pos_embed", "head.weight"} <= set(rest["param_names"])
    assert all(p.ndim >= 2 and p.shape[0] > 1 for p in hidden["params"])
    single = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))  # a head of one row is still the head
    assert Muon(single).param_groups[0]["param_names"] == ["0.weight"]


def test_the_parameters_of_an_objective_have_names():
    norm = nn.BatchNorm1d(2)
    assert [n for n, _ in objective_parameters(norm)] == ["objective.weight", "objective.bias"]
    bare = SimpleNamespace(parameters=lambda: iter([nn.Parameter(torch.ones(1))]))
    assert [n for n, _ in objective_parameters(bare)] == ["objective.0"]
    assert objective_parameters(object()) == []


@pytest.mark.parametrize(
    ("middle", "mode"),
    [
        (nn.BatchNorm1d(6), "train"),
        (nn.Dropout(0.5), "eval"),
        (nn.LayerNorm(6), "eval"),
    ],
)
def test_the_tracker_reads_the_network_as_it_is_trained(middle, mode):
    optimizer, _, _ = built("bulksgd:lr=0.1", Small(middle).double())
    assert optimizer.tracker.curvature.mode == mode


@pytest.mark.parametrize("loss", [MMCELoss(), SKCELoss()])  # these have no second derivative
def test_the_tracker_leaves_penalties_on_the_batch_out(loss):
    optimizer, _, _ = built("bulksgd:lr=0.1,k=1", Small().double(), loss)
    plain, _, _ = built("bulksgd:lr=0.1,k=1", Small().double())
    assert torch.equal(optimizer.tracker.top().value, plain.tracker.top().value)


def test_bulk_sgd_steps_off_the_hessian_of_batch_statistics():
    model = Small(nn.BatchNorm1d(6)).double()
    with torch.no_grad():
        model.body.weight.mul_(3)  # so that running statistics are far from the batch's
    optimizer, x, y = built("bulksgd:lr=0.1,k=1", model)
    top = torch.linalg.eigh(dense_hessian(model, x, y)).eigenvectors[:, -1]
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm1d)):
        norm.reset_running_stats()  # the dense Hessian's pass has moved them

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    found = torch.cat([optimizer.state[p]["bulk"].flatten() for p in model.parameters()])
    assert (found @ top).abs() > 0.999
