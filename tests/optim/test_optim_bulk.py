"""BulkSGD when groups come, k changes, parameters are frozen, or it is copied."""

import pickle
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import batches, largest_difference, make_mlp, train
from torch import nn

from toosure.curvature import CurvatureTracker
from toosure.optim import BulkSGD


class Axes:
    """The first coordinates of the parameters that learn."""

    def __init__(self, model):
        self.model, self.asked = model, []

    def top(self, matrix, k):
        self.asked.append(k)
        size = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        vectors = torch.eye(size, dtype=torch.float64)[:k]
        return SimpleNamespace(values=torch.ones(k), vectors=vectors, converged=True)


def make(model, k=1, **settings):
    return BulkSGD(model.parameters(), lr=0.1, k=k, tracker=Axes(model), **settings)


def test_a_group_added_between_refreshes():
    model = make_mlp()
    tracker = Axes(model[0])
    optimizer = BulkSGD(model[0].parameters(), lr=0.1, k=1, tracker=tracker, refresh=5)
    train(model, optimizer, F.cross_entropy, batches("mlp", 1))
    tracker.model = model
    optimizer.add_param_group({"params": list(model[2].parameters())})
    train(model, optimizer, F.cross_entropy, batches("mlp", 3))
    assert tracker.asked == [1, 1]  # not again in the third step


def test_k_changed_between_refreshes():
    model = make_mlp()
    optimizer = make(model, k=0, refresh=5)
    train(model, optimizer, F.cross_entropy, batches("mlp", 2))
    for k in (1, 3, 2):
        optimizer.param_groups[0]["k"] = k
        train(model, optimizer, F.cross_entropy, batches("mlp", 1))
        assert (model[0].weight.grad.flatten()[: k + 1] == 0).tolist() == [True] * k + [False]
    optimizer.param_groups[0]["k"] = -1
    with pytest.raises(ValueError, match="k must be a whole number from 0 to"):
        train(model, optimizer, F.cross_entropy, batches("mlp", 1))


@pytest.mark.parametrize("k", [-1, 1.5, 104, "1"])
def test_k_out_of_range(k):
    with pytest.raises(ValueError, match=r"from 0 to 103 \(parameters\); got"):
        make(make_mlp(), k=k)


def test_as_many_directions_as_parameters_leave_nothing():
    model, before = make_mlp(), make_mlp()
    train(model, make(model, k=103), F.cross_entropy, batches("mlp", 1))
    assert largest_difference(model, before) < 1e-12


@pytest.mark.parametrize("setting", [{"k": 2}, {"refresh": 3}, {"matrix": "gn"}])
def test_a_group_has_no_directions_of_its_own(setting):
    model = make_mlp()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), **setting}]
    with pytest.raises(ValueError, match="is one for all groups"):
        BulkSGD(groups, lr=0.1, k=1, tracker=Axes(model))


def test_a_tracker_must_be_there_when_it_is_needed():
    model = make_mlp()
    optimizer = BulkSGD(model.parameters(), lr=0.1, k=0)
    optimizer.param_groups[0]["k"] = 1
    with pytest.raises(ValueError, match="needs tracker"):
        train(model, optimizer, F.cross_entropy, batches("mlp", 1))


def real(model, **settings):
    tracker = CurvatureTracker(model, next(batches("mlp")), quantities=())
    return BulkSGD(model.parameters(), lr=0.1, k=2, tracker=tracker, **settings)


def test_frozen_parameters_with_the_real_tracker():
    model = make_mlp()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = real(model)
    train(model, optimizer, F.cross_entropy, batches("mlp", 2))
    assert torch.equal(model[0].weight, before)
    learned = [p for p in model.parameters() if p.requires_grad]
    along = sum(optimizer.state[p]["bulk"].flatten(1) @ p.grad.flatten() for p in learned)
    assert along.abs().max() < 1e-12


def test_a_parameter_without_axes():
    model = make_mlp()
    model.register_parameter("scale", nn.Parameter(torch.tensor(2.0, dtype=torch.float64)))
    model.register_forward_hook(lambda module, _, output: module.scale * output)
    optimizer = real(model)
    train(model, optimizer, F.cross_entropy, batches("mlp", 1))
    parts = [(optimizer.state[p]["bulk"].reshape(2, -1), p.grad) for p in model.parameters()]
    assert sum(part @ g.flatten() for part, g in parts).abs().max() < 1e-12


def test_parameters_frozen_on_the_way():
    model = make_mlp()
    optimizer = real(model)
    train(model, optimizer, F.cross_entropy, batches("mlp", 1))
    model[0].weight.requires_grad_(False)
    model.zero_grad()
    before = model[0].weight.clone()
    train(model, optimizer, F.cross_entropy, batches("mlp", 2))
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("copied", [deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies_after_a_step_with_the_real_tracker(copied):
    model = make_mlp()
    optimizer = real(model, momentum=0.9)
    train(model, optimizer, F.cross_entropy, batches("mlp", 2))
    optimizer.converged = False
    twin, again = copied((model, optimizer))
    assert not again.converged
    train(model, optimizer, F.cross_entropy, batches("mlp", 2))
    train(twin, again, F.cross_entropy, batches("mlp", 2))
    assert largest_difference(model, twin) < 1e-12


def test_rounds_hold_the_directions_in_place_of_a_solve():
    model, exact = make_mlp(), make_mlp()
    held = real(model, rounds=2)
    solved = real(exact)
    solved.tracker.rtol = 1e-8
    train(model, held, F.cross_entropy, batches("mlp", 12))
    train(exact, solved, F.cross_entropy, batches("mlp", 12))
    moved = largest_difference(exact, make_mlp())
    assert largest_difference(model, exact) < 0.05 * moved
    assert held.tracker.top("hessian", 2, rounds=2).products == 2 * 2 * (2 + 2)
    with pytest.raises(ValueError, match="rounds"):
        real(model, rounds=0)


def test_sparse_gradients():
    table = nn.Embedding(4, 2, sparse=True).double()
    optimizer = make(table)
    before = table.weight.detach().clone()

    def closure():
        optimizer.zero_grad()
        loss = table(torch.tensor([0, 0, 2])).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    moved = before - table.weight.detach()
    expected = [[0, 0.2], [0, 0], [0.1, 0.1], [0, 0]]
    assert torch.allclose(moved, torch.tensor(expected, dtype=torch.float64))
