"""CSAM is CSAM however the closure is written, or there is an error: never SAM in silence."""

import pickle
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import (
    batches,
    csam_loss,
    largest_difference,
    make_mlp,
    sam_shift,
    slow_sam,
    train,
)
from torch import nn

from toosure.losses import CSAMLoss
from toosure.optim import CSAM

SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


def make(model, **settings):
    return CSAM(model.parameters(), rho=0.1, **({"gamma": 2.0} | settings), **SGD)


def test_a_criterion_made_inside_the_closure():
    fast, slow, sam = make_mlp(), make_mlp(), make_mlp()
    data = list(batches("mlp", 1)) * 30  # learned by heart, so that Eq. 4 matters
    optimizer = make(fast)
    train(fast, optimizer, lambda *pair: optimizer.criterion()(*pair), data)
    slow_sam(slow, data, sam_shift, csam_loss(2.0), rho=0.1)
    slow_sam(sam, data, sam_shift, rho=0.1)
    assert largest_difference(fast, slow) < 1e-12
    assert largest_difference(fast, sam) > 1e-3


def test_a_criterion_that_is_not_used_is_an_error():
    model = make_mlp()
    optimizer = make(model)
    optimizer.criterion()
    before = deepcopy(model)
    with pytest.raises(ValueError, match="the closure did not use it"):
        train(model, optimizer, F.cross_entropy, batches("mlp", 1))
    assert largest_difference(model, before) == 0
    train(model, optimizer, optimizer.criterion(), batches("mlp", 1))
    with pytest.raises(ValueError, match="the closure did not use it"):  # nor used once long ago
        train(model, optimizer, F.cross_entropy, batches("mlp", 1))


@pytest.mark.parametrize("copied", [deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_the_criterion_of_another_optimizer_is_an_error(copied):
    model = make_mlp()
    optimizer = make(model)
    criterion = optimizer.criterion()
    train(model, optimizer, criterion, batches("mlp", 1))
    twin, again = copied((model, optimizer))
    with pytest.raises(ValueError, match="not of one it was copied from"):
        train(twin, again, criterion, batches("mlp", 1))


@pytest.mark.parametrize("copied", [deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_what_is_copied_together_stays_together(copied):
    model = make_mlp()
    optimizer = make(model)
    trio = model, optimizer, optimizer.criterion()
    twin, again, criterion = copied(trio)
    train(*trio, batches("mlp", 3))
    train(twin, again, criterion, batches("mlp", 3))
    assert largest_difference(model, twin) == 0


def test_detach_weight_reaches_the_criterion():
    model, twin = make_mlp(), make_mlp()
    optimizer = CSAM(model.parameters(), rho=0.0, gamma=2.0, detach_weight=True, lr=0.5)
    train(model, optimizer, optimizer.criterion(), batches("mlp", 5))
    loss = CSAMLoss(nn.CrossEntropyLoss(), 2.0, detach_weight=True)
    train(twin, torch.optim.SGD(twin.parameters(), lr=0.5), loss, batches("mlp", 5))
    assert largest_difference(model, twin) == 0
    full = make_mlp()
    train(full, torch.optim.SGD(full.parameters(), lr=0.5), CSAMLoss(None, 2.0), batches("mlp", 5))
    assert largest_difference(model, full) > 1e-6


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated")
def test_a_compiled_criterion_is_compiled_once_a_point():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, twin = make_mlp(), make_mlp()
    optimizer = CSAM(model.parameters(), rho=0.1, gamma=2.0, model=model, **SGD)
    compiled = torch.compile(optimizer.criterion(), backend="aot_eager")
    train(model, optimizer, compiled, batches("mlp", 5))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    optimizer = make(twin)
    train(twin, optimizer, optimizer.criterion(), batches("mlp", 5))
    assert largest_difference(model, twin) < 1e-12
