"""The loss of a row and its curvature: both of the mean over examples, whatever the criterion."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from test_watch import CE, data, model
from torch import nn
from torch.func import functional_call, jacrev

from toosure import Run, Watch
from toosure.config import RunConfig
from toosure.losses import BrierLoss, FocalLoss, MSELoss
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


def own_criterion(logits, labels):
    return F.cross_entropy(logits, labels)


NOTED = [
    (None, "CrossEntropyLoss()"),
    (nn.CrossEntropyLoss(), "CrossEntropyLoss()"),
    (nn.CrossEntropyLoss(torch.ones(4), label_smoothing=0.1), "weight=[1.0, 1.0, 1.0, 1.0])"),
    (FocalLoss(gamma=3.0), "FocalLoss(gamma=3.0"),
    (FocalLoss(gamma=1.0) + 0.5 * BrierLoss(), "factors=[1.0, 0.5], FocalLoss(gamma=1"),
    (own_criterion, "own_criterion"),
    (partial(F.cross_entropy, label_smoothing=0.2), "cross_entropy(label_smoothing=0.2)"),
]


@pytest.mark.parametrize(("loss", "said"), NOTED)
def test_a_run_notes_its_loss(loss, said, tmp_path):
    with Watch(model(), loss, data(), run=tmp_path, measure=(), config={"seed": 0}) as watch:
        watch.step()
    run = Run(tmp_path)
    assert said in run.environment["loss"] and run.config == {"seed": 0}


def test_a_resumed_run_keeps_the_loss_that_it_noted(tmp_path):
    settings = {"run": tmp_path / "r", "measure": (), "curvature_loss": CE, "every": 1}
    watch = Watch(model(), FocalLoss(), data(), **settings)
    watch.step()
    state = watch.state_dict()
    watch.close("stopped")
    with Watch(model(), FocalLoss(), data(), resume=state, **settings) as again:
        again.step()
    noted = Run(tmp_path / "r").environment
    assert noted["loss"].startswith("FocalLoss(gamma=")
    assert noted["curvature_loss"] == "CrossEntropyLoss()"
