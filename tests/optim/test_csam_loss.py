"""Eq. 4 against its figures, its limits, torch's own reductions, and the papers' inequalities."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure.losses import CSAMLoss
from toosure.optim import CSAM


@pytest.mark.parametrize(("gamma", "mean"), [(0.5, 0.66706579), (1, 0.65183165), (2, 0.63216509)])
def test_known_figures(fixture_f, gamma, mean):
    assert CSAMLoss(gamma=gamma)(*fixture_f).item() == pytest.approx(mean, abs=1e-8)
    total = CSAMLoss(nn.CrossEntropyLoss(reduction="sum"), gamma=gamma)(*fixture_f)
    assert total.item() == pytest.approx(4 * mean, abs=4e-8)
    each = CSAMLoss(nn.CrossEntropyLoss(reduction="none"), gamma=gamma)(*fixture_f)
    assert each.shape == (4,)
    assert each.mean().item() == pytest.approx(mean, abs=1e-8)


def two_class(p):
    """Logits of a binary classifier that gives the first class probability p."""
    return torch.tensor([[math.log(p / (1 - p)), 0.0]], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("p", [0.3, 0.51, 0.9, 0.999])
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_gradient_ratio_to_cross_entropy(p, gamma):
    label = torch.tensor([0])
    logits = two_class(p)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, label), logits)
    (full,) = torch.autograd.grad(CSAMLoss(gamma=gamma)(logits, label), logits)
    (fixed,) = torch.autograd.grad(CSAMLoss(None, gamma, True)(logits, label), logits)
    ratio = (1 + p) ** -gamma - gamma * p * (1 + p) ** (-gamma - 1) * math.log(p)
    if p <= 0.5:
        ratio = 1.0
    assert (full / plain).tolist()[0] == pytest.approx([ratio] * 2, rel=1e-12)
    assert (fixed / plain)[0, 0].item() == pytest.approx((1 + p) ** -gamma if p > 0.5 else 1.0)


def test_the_published_ratio():
    logits, label = two_class(0.9), torch.tensor([0])
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, label), logits)
    (full,) = torch.autograd.grad(CSAMLoss(gamma=1.0)(logits, label), logits)
    assert (full / plain)[0, 0].item() == pytest.approx(0.55258295, abs=1e-8)


def test_one_half_counts_as_unsure():
    logits = torch.zeros(1, 2, dtype=torch.float64)
    assert CSAMLoss(gamma=2.0)(logits, torch.tensor([1])).item() == pytest.approx(math.log(2))
    above = torch.tensor([[1e-9, 0.0]], dtype=torch.float64)
    assert CSAMLoss(gamma=2.0)(above, torch.tensor([0])).item() == pytest.approx(
        math.log(2) * 1.5**-2
    )


def test_reductions_follow_the_wrapped_loss():
    """Where no example is sure, Eq. 4 is the plain loss, class weights and ignored labels too."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 4, generator=generator, dtype=torch.float64) * 0.1
    labels = torch.randint(4, (20,), generator=generator)
    labels[::5] = -100
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        for loss in (
            nn.CrossEntropyLoss(reduction=reduction),
            nn.CrossEntropyLoss(weight, reduction=reduction, label_smoothing=0.0),
        ):
            assert torch.allclose(CSAMLoss(loss, 2.0)(logits, labels), loss(logits, labels))


def test_finite_at_huge_logits():
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = CSAMLoss(gamma=2.0)(logits, torch.tensor([0, 0]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


def test_gradcheck():
    logits = torch.tensor(
        [[2.0, 0.5, -1.0], [0.2, 1.0, 0.1], [-0.5, 0.0, 3.0]], dtype=torch.float64
    ).requires_grad_()
    labels = torch.tensor([0, 2, 2])
    for gamma in (1.0, 1.5):
        loss = CSAMLoss(gamma=gamma)
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, labels), logits)
        assert torch.autograd.gradgradcheck(lambda z, loss=loss: loss(z, labels), logits)


def test_second_derivatives_and_torch_func_agree_with_the_long_way(fixture_f):
    """Curvature of Eq. 4: a slope written out must itself be differentiated."""
    logits, labels = fixture_f
    long = nn.CrossEntropyLoss(torch.ones(3, dtype=torch.float64))
    for detach in (False, True):
        short, slow = CSAMLoss(None, 1.5, detach), CSAMLoss(long, 1.5, detach)
        hessians = [
            torch.autograd.functional.hessian(lambda z, loss=loss: loss(z, labels), logits)
            for loss in (short, slow)
        ]
        assert torch.allclose(*hessians, atol=1e-14)
        grads = [torch.func.grad(loss)(logits, labels) for loss in (short, slow)]
        assert torch.allclose(*grads, atol=1e-15)


@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_ignored_labels_reductions_and_pixels(gamma):
    """Sure and unsure examples, some ignored, in the shape of images: against one at a time."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, 4, 5, generator=generator, dtype=torch.float64)
    labels = logits.argmax(1)  # (6, 5), mostly sure
    labels[::2] = torch.randint(4, (3, 5), generator=generator)
    labels[1, :2] = -100
    p = logits.softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    each = torch.where(p > 0.5, (1 + p) ** -gamma, 1.0) * -p.log() * (labels != -100)
    assert (p > 0.5).any()
    assert (p <= 0.5).any()
    expected = {"none": each, "sum": each.sum(), "mean": each.sum() / (labels != -100).sum()}
    for reduction, value in expected.items():
        loss = CSAMLoss(nn.CrossEntropyLoss(reduction=reduction), gamma)
        assert torch.allclose(loss(logits, labels), value, rtol=1e-12), reduction


@pytest.mark.parametrize("weight", [None, torch.ones(4, dtype=torch.float64)])
def test_an_ignored_label_past_the_classes(weight):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(8, 4, generator=generator, dtype=torch.float64)
    labels = logits.argmax(1)
    expected = CSAMLoss(nn.CrossEntropyLoss(weight), 1.5)(logits[2:], labels[2:])
    labels[:2] = 255
    found = CSAMLoss(nn.CrossEntropyLoss(weight, ignore_index=255), 1.5)(logits, labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-14)


def test_half_precision_logits():
    logits, labels = torch.tensor([[3.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
    expected = CSAMLoss(gamma=2.0)(logits, labels)
    found = CSAMLoss(gamma=2.0)(logits.bfloat16(), labels)
    assert found.item() == pytest.approx(expected.item(), rel=2**-7)


def test_plain_cross_entropy_takes_no_second_softmax(fixture_f):
    """The short way (p = exp(-loss)) and the long one (class weights of one) agree."""
    logits, labels = fixture_f
    long = nn.CrossEntropyLoss(torch.ones(3, dtype=torch.float64))
    for detach in (False, True):
        values, grads = [], []
        for loss in (nn.CrossEntropyLoss(), long):
            z = logits.clone().requires_grad_()
            value = CSAMLoss(loss, 1.5, detach)(z, labels)
            values.append(value.item())
            grads.append(torch.autograd.grad(value, z)[0])
        assert values[0] == pytest.approx(values[1], rel=1e-14)
        assert torch.allclose(*grads, atol=1e-15)


class Focal(nn.Module):
    """The focal loss, with torch's reduction."""

    def __init__(self, gamma=2.0, reduction="mean"):
        super().__init__()
        self.gamma, self.reduction = gamma, reduction

    def forward(self, logits, labels):
        log_p = F.log_softmax(logits, 1).gather(1, labels[:, None])[:, 0]
        each = -((1 - log_p.exp()) ** self.gamma) * log_p
        return {"mean": each.mean, "sum": each.sum, "none": lambda: each}[self.reduction]()


def test_on_top_of_focal_loss(fixture_f):
    logits, labels = fixture_f
    p = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    weight = torch.where(p > 0.5, (1 + p) ** -1.0, 1.0)
    focal = Focal()
    expected = (weight * -((1 - p) ** 2) * p.log()).mean()
    assert CSAMLoss(focal, 1.0)(logits, labels).item() == pytest.approx(expected.item(), rel=1e-12)
    assert focal.reduction == "mean"


def test_a_loss_without_reduction_is_an_error():
    optimizer = CSAM([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ValueError, match="must offer reduction"):
        optimizer.criterion(nn.Softmax(1))
    with pytest.raises(ValueError, match="class indices"):
        CSAMLoss()(torch.zeros(2, 2), torch.ones(2, 2))


def test_the_criterion_knows_where_it_is(fixture_f):
    optimizer = CSAM([nn.Parameter(torch.ones(1))], lr=0.1, gamma=2.0)
    criterion = optimizer.criterion()
    assert criterion.reduction == "mean"
    assert criterion(*fixture_f).item() == pytest.approx(0.68762214, abs=1e-8)
    optimizer.point.perturbed = True
    assert criterion.perturbed
    assert criterion(*fixture_f).item() == pytest.approx(0.63216509, abs=1e-8)
