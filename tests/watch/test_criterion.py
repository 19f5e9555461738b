"""The loss of a row and its curvature: both of the mean over examples, whatever the criterion."""

import pytest
import torch
import torch.nn.functional as F
from test_watch import CE, data, model
from torch import nn
from torch.func import functional_call, jacrev

from toosure import Watch
from toosure.config import RunConfig
from toosure.losses import FocalLoss, MSELoss
from toosure.train import Runtime, train


def dense(net, x, y, each):
    """The mean over examples of J' H J, formed in full, and its largest eigenvalue."""
    parameters = {name: p.detach().double() for name, p in net.named_parameters()}
    total = 0
    for one, label in zip(x.double(), y, strict=True):
        blocks = jacrev(lambda p, one=one: functional_call(net, p, one[None])[0])(parameters)
        jacobian = torch.cat([block.flatten(1) for block in blocks.values()], 1)  # (C, P)
        z = functional_call(net, parameters, one[None])[0]
        hessian = torch.func.hessian(lambda z, label=label: each(z[None], label[None]))(z)
        total = total + jacobian.T @ hessian @ jacobian
    return float(torch.linalg.eigvalsh(total / len(y))[-1])


def sum_of(loss):
    return lambda z, label: loss(z, label).sum()


@pytest.mark.parametrize(
    "make", [nn.CrossEntropyLoss, FocalLoss, lambda reduction: MSELoss("half", reduction=reduction)]
)
def test_loss_and_curvature_are_those_of_the_mean(make):
    net, (x, y) = model(), data(20)
    expected = dense(net, x, y, sum_of(make(reduction="none")))
    mean = float(make(reduction="mean")(net(x), y).detach())
    for reduction in ("mean", "sum"):
        row = Watch(net, make(reduction=reduction), (x, y), rtol=1e-6).last
        assert row["train/loss"] == pytest.approx(mean, rel=1e-6)
        assert row["train/gn_sharpness"] == pytest.approx(expected, rel=1e-4)


def test_a_network_that_ends_in_log_softmax_is_not_flat():
    net, (x, y) = model(), data(20)
    plain = Watch(net, CE, (x, y), rtol=1e-6).last
    for reduction in ("mean", "sum"):
        loss = nn.NLLLoss(reduction=reduction)
        row = Watch(nn.Sequential(net, nn.LogSoftmax(1)), loss, (x, y), rtol=1e-6).last
        for key in ("loss", "gn_sharpness", "ece", "margin_mean"):
            assert row[f"train/{key}"] == pytest.approx(plain[f"train/{key}"], rel=1e-4), key
    assert dense(net, x, y, F.cross_entropy) == pytest.approx(row["train/gn_sharpness"], rel=1e-4)


def test_one_value_per_example_is_refused(tmp_path):
    with pytest.raises(ValueError, match="reduction none, one value per example"):
        Watch(model(), nn.CrossEntropyLoss(reduction="none"), data())
    with pytest.raises(ValueError, match=r"must give one number; got shape \(60,\)"):
        Watch(model(), lambda z, y: F.cross_entropy(z, y, reduction="none"), data(), measure=())
    config = RunConfig(data="digits:train=60,val=0", loss="ce:reduction=none", steps=1)
    with pytest.raises(ValueError, match=r"reduction .*none"):
        train(config, tmp_path, Runtime("cpu"))
