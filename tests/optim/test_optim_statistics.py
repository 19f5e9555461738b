"""BatchNorm layers move once a step, each in the first pass that runs it."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import batches, largest_difference, make_cnn, train
from torch import nn

from toosure.optim import BSAM, SAM

MAKE = {
    "sam": lambda p, **kw: SAM(p, rho=0.1, lr=0.01, **kw),
    "plain": lambda p, **kw: SAM(p, rho=0.0, lr=0.01, **kw),
    "bsam": lambda p, **kw: BSAM(p, lr=0.01, data_size=100, **kw),
}
every = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
told = pytest.mark.parametrize("told", [False, True], ids=["hooks", "model"])


def closure_of(model, inputs, labels):
    def closure():
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    return closure


@every
@told
def test_closures_of_different_networks(make, told):
    """Each layer moves once a step, by the batch of its own first pass."""
    both = nn.ModuleList([make_cnn(seed=0), make_cnn(seed=1)])
    optimizer = make(both.parameters(), **({"model": both} if told else {}))
    for data in zip(batches("cnn", 3), reversed(list(batches("cnn", 3))), strict=True):
        fresh = deepcopy(both)
        optimizer.step([closure_of(net, *pair) for net, pair in zip(both, data, strict=True)])
        for net, copy, (inputs, _) in zip(both, fresh, data, strict=True):
            copy(inputs)
            if not isinstance(optimizer, BSAM):  # whose first pass is at a sample
                assert torch.equal(net[1].running_mean, copy[1].running_mean)
                assert torch.equal(net[1].running_var, copy[1].running_var)
    assert [int(net[1].num_batches_tracked) for net in both] == [3, 3]


@told
def test_a_shared_layer_moves_by_the_first_micro_batch(told):
    model, twin = make_cnn(), make_cnn()
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.01, **({"model": model} if told else {}))
    first, second = batches("cnn", 2)
    optimizer.step([closure_of(model, *first), closure_of(model, *second)])
    twin(first[0])
    assert torch.equal(model[1].running_var, twin[1].running_var)
    assert model[1].num_batches_tracked == 1


def test_a_layer_met_first_in_a_second_micro_batch_of_a_later_step():
    a, b = make_cnn(seed=0), make_cnn(seed=1)
    optimizer = SAM([*a.parameters(), *b.parameters()], rho=0.1, lr=0.01)
    first, second, third = batches("cnn", 3)
    optimizer.step([closure_of(a, *first), closure_of(a, *second)])
    optimizer.step([closure_of(a, *first), closure_of(b, *second), closure_of(b, *third)])
    assert [int(net[1].num_batches_tracked) for net in (a, b)] == [2, 1]


def test_an_exception_in_a_later_micro_batch_keeps_the_first_move():
    a, b = make_cnn(seed=0), make_cnn(seed=1)
    optimizer = SAM([*a.parameters(), *b.parameters()], rho=0.1, lr=0.01)
    first, second = batches("cnn", 2)

    def broken():
        a(second[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimizer.step([closure_of(a, *first), broken])
    assert a[1].num_batches_tracked == 1
    assert not optimizer.statistics.after
    assert not optimizer.statistics.before


@told
def test_scripted_layers_move_once(told):
    plain, twin = make_cnn(), make_cnn()
    model = torch.jit.script(plain)
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.1, **({"model": model} if told else {}))
    train(model, optimizer, F.cross_entropy, batches("cnn", 3))
    train(twin, SAM(twin.parameters(), rho=0.1, lr=0.1), F.cross_entropy, batches("cnn", 3))
    assert twin[1].num_batches_tracked == 3
    assert largest_difference(model, twin) < 1e-12
