"""The theory of SAM along a run, against dense Hessians in train mode and the paper's formulas."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from toosure.config import RunConfig
from toosure.ensembles import DeepEnsemble
from toosure.losses import FocalLoss
from toosure.optim import ASAM, CSAM, SAM
from toosure.quantities.of_sam import OF_SAM, SAM_PATH
from toosure.train import train
from toosure.train.build import sam_radius
from toosure.watch import Watch
from toosure.watch.sam_numbers import fixed_batch, sam_numbers

RHO = 0.3


@pytest.fixture(scope="module")
def problem():
    """A network with batch normalisation, whose train mode differs from its eval mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).double()
    x = torch.randn(24, 3, dtype=torch.float64)
    return model, (x, torch.arange(24) % 3)


@pytest.fixture(scope="module")
def row(problem):
    model, data = problem
    watch = Watch(model, None, data, measure="sam_theory", rho=RHO, batch=12)
    return watch.rows[0]


def loss_in_train_mode(model, x, y):
    """Return the loss as a function of all weights in one vector; running statistics are copies."""
    named = dict(model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def loss(flat):
        parts = flat.split(sizes)
        weights = {k: v.view_as(p) for (k, p), v in zip(named.items(), parts, strict=True)}
        buffers = {k: b.clone() for k, b in model.named_buffers()}
        return F.cross_entropy(functional_call(model, weights | buffers, (x,)), y)

    return loss, torch.cat([p.detach().flatten() for p in named.values()])


def test_a_row_holds_what_dense_hessians_and_the_formulas_give(problem, row):
    model, data = problem
    loss, theta = loss_in_train_mode(model, *fixed_batch(data, 12))
    gradient = torch.autograd.functional.jacobian(loss, theta)
    step = RHO * gradient / gradient.norm()

    for share, key in SAM_PATH.items():
        hessian = torch.autograd.functional.hessian(loss, theta + share * step)
        exact = float(torch.linalg.eigvalsh(hessian)[0])
        assert row[f"train/{key}"] == pytest.approx(exact, rel=0.02), key
    assert row["train/sam_kappa_bound"] == pytest.approx(-float(gradient.norm()) / RHO, rel=1e-9)

    # The probability of a batch is the geometric mean: exp of minus its mean loss.
    p, moved = (math.exp(-float(loss(at))) for at in (theta, theta + step))
    growth = math.exp(RHO * float(gradient.norm()) / 2)
    assert row["train/sam_p_y"] == pytest.approx(p, rel=1e-9)
    assert row["train/sam_p_y_perturbed"] == pytest.approx(moved, rel=1e-9)
    assert row["train/sam_lambda"] == pytest.approx((1 - moved) / (1 - p), rel=1e-9)
    assert row["train/sam_lambda_0"] == pytest.approx((1 - moved) / (1 - growth * moved), rel=1e-9)
    assert row["train/sam_failed"] == 0 and "train/sam_kappa_min_unconverged" not in row


def test_the_entropy_is_that_of_the_label_against_the_rest(problem, row):
    model, data = problem
    x, y = fixed_batch(data, 12)
    twin = nn.Sequential(*model)
    buffers = {k: b.clone() for k, b in twin.named_buffers()}
    p = functional_call(twin, buffers, (x,)).detach().softmax(1)[torch.arange(12), y]
    expected = torch.special.entr(p) + torch.special.entr(1 - p)
    assert row["train/sam_entropy"] == pytest.approx(float(expected.mean()), rel=1e-6)


def test_nothing_of_the_model_changes_and_only_train_has_the_keys(problem):
    model, data = problem
    before = {k: v.clone() for k, v in model.state_dict().items()}
    watch = Watch(model, None, data, val=data, measure="sam_theory", batch=12)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert {f"train/{q.key}" for q in OF_SAM} <= set(watch.rows[0])
    assert not [key for key in watch.rows[0] if key.startswith("val/sam_")]


def test_no_step_no_numbers(problem):
    """A zero gradient, or a radius that a controller has set to 0."""
    _, data = problem
    flat = nn.Linear(3, 3).double()
    nn.init.zeros_(flat.weight)
    nn.init.zeros_(flat.bias)
    balanced = torch.zeros(3, 3, dtype=torch.float64), torch.arange(3)
    assert sam_numbers(flat, balanced, 0.1) == {}
    assert sam_numbers(flat, data, lambda: 0.0) == {}


def test_a_batch_is_the_same_at_every_row_and_no_larger_than_the_split(problem):
    _, data = problem
    assert torch.equal(fixed_batch(data, 5)[0], fixed_batch(data, 5)[0])
    assert len(fixed_batch(data, 100)[1]) == 24


def test_a_run_measures_the_radius_of_its_optimizer(tmp_path):
    small = {"data": "digits:train=64,val=20,test=20", "model": "mlp:width=4", "batch": 16}
    config = RunConfig(
        **small, optimizer="sam:rho=0.2,lr=0.1", steps=2, every=2, measure=("sam_theory",)
    )
    run = train(config, tmp_path)
    last = run.last
    assert last["train/sam_failed"] == 0
    assert last["train/sam_lambda_0"] <= last["train/sam_lambda"] * (1 + 1e-6)
    assert last["train/sam_kappa_bound"] < 0


def test_the_radius_is_read_when_a_row_is_measured():
    weight = nn.Parameter(torch.ones(2))
    optimizer = CSAM([weight], rho=0.1, lr=0.1)
    rho = sam_radius(optimizer)
    optimizer.param_groups[0]["rho"] = 0.4
    assert rho() == pytest.approx(0.4)
    assert sam_radius(SAM([weight], rho=0.3, lr=0.1))() == pytest.approx(0.3)
    assert sam_radius(ASAM([weight], rho=2.0, lr=0.1)) == 0.05  # relative to the weights: not ours
    assert sam_radius(torch.optim.SGD([weight], lr=0.1)) == 0.05


@pytest.mark.parametrize("in_tensors", [False, True])
def test_a_deferred_row_has_the_radius_and_the_gamma_of_its_own_step(problem, in_tensors):
    rows = [rows_while_both_move(*problem, in_tensors, defer) for defer in (False, True)]
    assert rows[0] == rows[1]
    assert len({row["train/sam_kappa_bound"] for row in rows[1]}) == 2
    assert len({row["train/loss"] for row in rows[1]}) == 2


def rows_while_both_move(model, data, in_tensors, defer):
    """The rows of two steps, after each of which radius and gamma are moved."""
    kept = torch.tensor if in_tensors else float
    loss, moved = FocalLoss(kept(1.0)), {"rho": kept(0.05)}
    options = {"measure": ("sam_theory", "gn_sharpness"), "batch": 12, "every": 1, "defer": defer}
    with Watch(model, loss, data, rho=lambda: moved["rho"], **options) as watch:
        for gamma, rho in ((2.0, 0.1), (4.0, 0.2)):
            watch.step()
            if in_tensors:  # as a control does on a GPU
                moved["rho"].fill_(rho)
                loss.gamma.fill_(gamma)
            else:
                moved["rho"], loss.gamma = rho, gamma
    return [{key: row[key] for key in row if "seconds" not in key} for row in watch.rows]


def test_what_it_cannot_be_measured_on_is_refused(problem):
    model, (x, y) = problem
    words = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 3))
    tokens = torch.randint(0, 5, (6, 2)), torch.arange(6) % 3
    with pytest.raises(ValueError, match="sam_theory needs examples with one label"):
        Watch(words, None, tokens, measure="sam_theory")
    with pytest.raises(ValueError, match="SAM's theorems are about the loss of one network"):
        Watch(model, None, (x, y), measure="sam_theory", objective=DeepEnsemble(members=2, seed=0))
