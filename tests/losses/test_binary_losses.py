"""Losses of one logit per example against torch's binary cross-entropy, and what they refuse."""

import pytest
import torch
from torch import nn

from toosure.binary import two_columns
from toosure.losses import (
    ACLSLoss,
    BrierLoss,
    CrossEntropyLoss,
    CSAMLoss,
    FocalLoss,
    MMCELoss,
    MSELoss,
)
from toosure.optim import CSAM

generator = torch.Generator().manual_seed(0)
Z = 2 * torch.randn(12, generator=generator, dtype=torch.float64)
Y = torch.randint(2, (12,), generator=generator)
BCE = nn.BCEWithLogitsLoss()(Z, Y.double())


def test_cross_entropy_is_torchs_binary_one():
    torch.testing.assert_close(CrossEntropyLoss()(Z, Y), BCE, rtol=1e-14, atol=0)
    torch.testing.assert_close(FocalLoss(gamma=0.0)(Z[:, None], Y.bool()), BCE, rtol=1e-14, atol=0)
    brier = 2 * (Z.sigmoid() - Y).square().mean()
    torch.testing.assert_close(BrierLoss()(Z, Y.float()), brier, rtol=1e-13, atol=0)


def test_torchs_binary_loss_is_a_term_and_a_base():
    torch.testing.assert_close(
        (0.5 * BrierLoss() + nn.BCEWithLogitsLoss())(Z, Y), BCE + 0.5 * BrierLoss()(Z, Y)
    )
    with_base = MMCELoss(base=nn.BCEWithLogitsLoss())(Z, Y)
    torch.testing.assert_close(with_base, MMCELoss()(two_columns(Z), Y))

    weighted = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0, dtype=torch.float64))
    torch.testing.assert_close(
        (1.0 * CrossEntropyLoss() + weighted)(Z, Y), BCE + weighted(Z, Y.double())
    )
    with pytest.raises(ValueError, match="one logit per example; got 3 classes"):
        (BrierLoss() + nn.BCEWithLogitsLoss())(torch.zeros(12, 3), Y)


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss(), FocalLoss(0.0)])
@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_csam_weights_one_logit_per_example(shape, loss, gamma):
    def value_and_slope(z, labels, inner):
        z = z.clone().requires_grad_()
        value = CSAMLoss(inner, gamma)(z, labels)
        return value.detach(), torch.autograd.grad(value, z)[0]

    expected, slope = value_and_slope(two_columns(Z), Y, nn.CrossEntropyLoss())
    for labels in (Y, Y.bool(), Y.double()):
        value, gradient = value_and_slope(Z.reshape(shape), labels.reshape(shape), loss)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient.flatten(), slope[:, 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", [None, nn.BCEWithLogitsLoss()])
def test_csam_trains_a_binary_network_as_two_columns(loss):
    inputs = torch.randn(12, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def trained(columns):
        torch.manual_seed(0)
        model = nn.Linear(3, 1, dtype=torch.float64)
        optimizer = CSAM(model.parameters(), lr=0.1, rho=0.05, gamma=1.0)
        criterion = optimizer.criterion(None if columns else loss)

        def closure():
            optimizer.zero_grad()
            z = model(inputs)
            value = criterion(two_columns(z), Y) if columns else criterion(z, Y.double()[:, None])
            value.backward()
            return value

        losses = [optimizer.step(closure).item() for _ in range(3)]
        return losses, model.weight.detach()

    losses, weight = trained(columns=False)
    expected, expected_weight = trained(columns=True)
    assert losses == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(weight, expected_weight, rtol=0, atol=1e-12)


def test_what_cannot_be_taken_says_why():
    for loss in (MSELoss(), BrierLoss() + MSELoss(), MMCELoss(base=MSELoss()), CSAMLoss(MSELoss())):
        with pytest.raises(ValueError, match="MSELoss fits every logit"):
            loss(Z, Y)
    with pytest.raises(ValueError, match="reference='min'"):
        ACLSLoss()(Z, Y)
    assert ACLSLoss(reference="min", margin=1.0)(Z, Y).isfinite()

    with pytest.raises(ValueError, match=r"got 0\.5 in row 2"):
        BrierLoss()(Z[:3], torch.tensor([0.0, 1.0, 0.5]))
    with pytest.raises(ValueError, match="got 2 in row 0"):
        BrierLoss()(Z[:1], torch.tensor([2]))
    with pytest.raises(ValueError, match=r"labels \(12,\) or \(12, 1\); got .* \(5,\)"):
        BrierLoss()(Z, Y[:5])


def test_it_can_be_compiled_away_and_vmapped():
    def loss(z, y):
        return FocalLoss()(z[None], y[None])

    each = torch.func.vmap(loss)(Z, Y)
    torch.testing.assert_close(each, FocalLoss(reduction="none")(Z, Y))
