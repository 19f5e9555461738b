"""Steps from gradients that a framework has computed: one pass less, and the same step."""

import pytest
import torch
from torch import nn

from toosure.optim import ASAM, BSAM, CSAM, SAM, VASSO


def batch_norm_problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    return net, torch.randn(12, 4), torch.arange(12) % 3


def stepped(how, kind, calls, **options):
    """Two steps, with a closure for both passes, or with gradients that are there."""
    net, x, y = batch_norm_problem()
    optimizer = kind(net.parameters(), lr=0.2, momentum=0.9, **options)
    criterion = nn.CrossEntropyLoss()
    if kind is CSAM:
        criterion = optimizer.criterion(criterion)

    def closure():
        calls.append(how)
        loss = criterion(net(x), y)
        loss.backward()
        return loss

    if how == "second_pass":
        optimizer.second_pass = closure
    for _ in range(2):
        if how == "closure":
            optimizer.step(closure)
            continue
        optimizer.zero_grad()
        closure()
        if how == "gradients_ready":
            optimizer.step(closure, gradients_ready=True)
        else:
            optimizer.step()
    return [*net.parameters(), *net.buffers()]


@pytest.mark.parametrize("how", ["gradients_ready", "second_pass"])
@pytest.mark.parametrize("kind", [SAM, ASAM, VASSO, CSAM])
def test_gradients_at_hand_save_a_pass_and_change_no_bit(kind, how):
    calls = []
    expected = stepped("closure", kind, calls)
    found = stepped(how, kind, calls)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))  # statistics too
    assert calls.count(how) == calls.count("closure") == 4


def test_without_a_perturbation_the_gradients_at_hand_are_the_step():
    calls = []
    found = stepped("gradients_ready", SAM, calls, rho=0.0)
    assert len(calls) == 2  # those of the test itself
    expected = stepped("closure", SAM, calls, rho=0.0)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_gradients_that_are_not_there_or_of_no_use():
    net, x, _ = batch_norm_problem()
    with pytest.raises(ValueError, match=r"no gradients to step with: call backward\(\) before"):
        SAM(net.parameters(), lr=0.1).step(lambda: None, gradients_ready=True)
    net(x).sum().backward()
    with pytest.raises(ValueError, match="BSAM takes its first gradient at another point"):
        BSAM(net.parameters(), lr=0.1, data_size=9).step(lambda: None, gradients_ready=True)
    with pytest.raises(ValueError, match="takes one closure, which runs all micro-batches"):
        SAM(net.parameters(), lr=0.1).step([lambda: None] * 2, gradients_ready=True)
    with pytest.raises(ValueError, match="step needs a closure"):
        SAM(net.parameters(), lr=0.1).step()


def test_an_error_in_the_second_pass_leaves_weights_and_statistics():
    net, x, y = batch_norm_problem()
    optimizer = SAM(net.parameters(), lr=0.1)
    nn.functional.cross_entropy(net(x), y).backward()
    before = [t.clone() for t in (*net.parameters(), *net.buffers())]

    def fails():
        net(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        optimizer.step(fails, gradients_ready=True)
    now = (*net.parameters(), *net.buffers())
    assert all(torch.equal(a, b) for a, b in zip(now, before, strict=True))
