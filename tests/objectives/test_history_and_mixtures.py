"""AdaFocal, CRL, mixup and MIT-L: figures, limits and state."""

import math
from types import SimpleNamespace

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from torch import nn

from toosure.data import digits
from toosure.losses import FocalLoss, InverseFocalLoss
from toosure.models import mlp
from toosure.objectives import CRL, MIT, AdaFocal, Mixup
from toosure.objectives.adafocal import BinnedFocalLoss, interpolated_inner_edges, next_gamma
from toosure.objectives.crl import rank_penalty, scores
from toosure.objectives.mixup import far_apart, mixed, unmixed
from toosure.optim import SAM

CE = nn.CrossEntropyLoss()
BATCH = (
    torch.randn(6, 4, generator=torch.Generator().manual_seed(0)),
    torch.tensor([0, 1, 2, 2, 0, 1]),
    torch.arange(6),
)


def tiny():
    torch.manual_seed(1)
    return nn.Linear(4, 3)


# AdaFocal


@pytest.mark.parametrize(
    ("gamma", "gap", "after"),
    [
        (1, 0.1, 1.10517092),
        (1, -0.2, 0.81873075),
        (0.21, -0.1, -0.2),
        (-0.21, 0.1, 0.2),
        (-1.9, -0.2, -2),
        (19, 0.1, 20),
        (1, 0.0, 1.0),
    ],
)
def test_gamma_follows_the_gap(gamma, gap, after):
    gamma, gap = (torch.tensor([float(v)], dtype=torch.float64) for v in (gamma, gap))
    assert next_gamma(gamma, gap, 1.0, 0.2, -2.0, 20.0).item() == pytest.approx(after, abs=1e-6)
    assert next_gamma(gamma, gap, 0.0, 0.2, -2.0, 20.0).item() == gamma.item()


def test_one_gamma_is_focal_loss(fixture_f):
    for gamma in (0.0, 1.0, 3.0):
        loss = BinnedFocalLoss(15, gamma).double()
        torch.testing.assert_close(loss(*fixture_f), FocalLoss(gamma)(*fixture_f))
    inverse = BinnedFocalLoss(15, -1.5).double()
    torch.testing.assert_close(inverse(*fixture_f), InverseFocalLoss(1.5)(*fixture_f))


def test_an_example_takes_the_gamma_of_its_bin(fixture_f):
    """p_y = .786, .219, .926, .401."""
    loss = BinnedFocalLoss(2, 1.0, "none").double()
    loss.gamma.copy_(torch.tensor([2.0, -1.0]))
    found = loss(*fixture_f)
    wanted = torch.where(
        torch.tensor([True, False, True, False]),
        InverseFocalLoss(1.0, "none")(*fixture_f),
        FocalLoss(2.0, "none")(*fixture_f),
    )
    torch.testing.assert_close(found, wanted)


def test_bins_hold_equal_mass():
    import numpy as np

    confidence = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ordered = np.sort(confidence.numpy())
    published = np.interp(np.linspace(0, 100, 16), np.arange(100), ordered)[1:-1]
    assert interpolated_inner_edges(confidence, 15).tolist() == pytest.approx(published)
    loss = BinnedFocalLoss(15, 1.0).double()
    loss.edges.copy_(interpolated_inner_edges(confidence, 15))
    counts = torch.bincount(loss.bins_of(confidence), minlength=15)
    assert counts.sum() == 100 and counts.min() >= 6 and counts.max() <= 8


def test_over_confidence_raises_gamma_and_ties_do_no_harm():
    objective = AdaFocal(bins=5)
    sure = torch.ones(50, dtype=torch.float64)
    objective.correct(sure, torch.zeros_like(sure))  # every bin but one is empty
    gamma = objective.focal.gamma
    assert gamma.max().item() == pytest.approx(2.7182818) and (gamma == 1).sum() == 4
    assert objective.focal.bins_of(torch.tensor([1.0, 0.0])).max() < 5


def test_adafocal_learns_from_the_validation_set():
    data = digits(train=100, val=60)
    model, objective = mlp((1, 8, 8), width=8), AdaFocal(bins=4)
    objective.setup(model, data)
    with torch.no_grad():
        model.head.weight.mul_(50)  # sure of everything, and wrong
    model.train()
    objective.epoch_end(model)
    assert model.training and objective.focal.gamma.min() > 1
    again = AdaFocal(bins=4)
    again.load_state_dict(objective.state_dict())
    assert torch.equal(again.focal.gamma, objective.focal.gamma)
    assert torch.equal(again.loss.edges, objective.focal.edges)
    assert objective.report()["objective/gamma_max"] > 1


def test_adafocal_needs_validation_data():
    with pytest.raises(ValueError, match="name a val size"):
        AdaFocal().setup(None, SimpleNamespace(val=None))


# CRL


def test_ranks_by_hand(fixture_f):
    logits, _ = fixture_f
    objective = CRL()
    objective.remember(5)
    objective.double()
    objective.counts.copy_(torch.tensor([3, 1, 3, 2, 4.0]))
    objective.epochs.fill_(4)
    history = objective.history(torch.arange(4))
    assert history.tolist() == pytest.approx([2 / 3, 0, 2 / 3, 1 / 3])
    objective.counts[1], objective.fresh[1] = 0, 1  # what this epoch saw counts at once
    assert torch.equal(objective.history(torch.arange(4)), history)
    score = scores(logits, "confidence")
    gap = history - history.roll(-1)
    pairs = (gap.abs() - gap.sign() * (score - score.roll(-1))).relu()
    assert pairs.tolist() == pytest.approx([0.41989217, 0.27954994, 0, 0.03748562], abs=1e-6)
    assert rank_penalty(score, history).item() == pytest.approx(0.18423193, abs=1e-6)


def test_equal_histories_are_not_ranked():
    assert rank_penalty(torch.tensor([0.9, 0.1, 0.5]), torch.ones(3)).item() == 0


def test_scores(fixture_f):
    from toosure import margins, metrics

    logits, labels = fixture_f
    torch.testing.assert_close(scores(logits, "confidence"), metrics.top_label(logits, labels)[0])
    probs = logits.softmax(1)
    torch.testing.assert_close(scores(logits, "margin"), margins.predicted_margin(probs))
    flat = scores(torch.zeros(1, 3, dtype=torch.float64), "entropy")
    assert flat.item() == pytest.approx(-1, abs=1e-7)


def test_the_first_epoch_is_the_plain_loss_and_counts():
    model, objective = tiny(), CRL()
    objective.remember(8)
    loss = objective(model, objective.prepare(model, BATCH))
    torch.testing.assert_close(loss, CE(model(BATCH[0]), BATCH[1]))
    right = (model(BATCH[0]).argmax(1) == BATCH[1]).float()
    assert torch.equal(objective.fresh[:6], right) and objective.fresh[6:].sum() == 0
    objective.epoch_end(model)
    assert torch.equal(objective.counts[:6], right) and objective.epochs == 1
    again = CRL()
    again.remember(8)
    again.load_state_dict(objective.state_dict())
    assert torch.equal(again.history(BATCH[2]), objective.history(BATCH[2]))


def test_sam_counts_an_example_once():
    model, objective = tiny(), CRL()
    objective.remember(6)
    right = (model(BATCH[0]).argmax(1) == BATCH[1]).float()
    prepared = objective.prepare(model, BATCH)

    def closure():
        loss = objective(model, prepared)
        loss.backward()
        return loss

    SAM(model.parameters(), rho=0.5, lr=0.0).step(closure)
    assert torch.equal(objective.fresh, right)


def test_counts_of_several_processes_are_joined(monkeypatch):
    objective = CRL()
    objective.remember(4)
    objective.fresh.copy_(torch.tensor([1, 0, 0, 0.0]))
    others = torch.tensor([0, 1, 1, 0.0])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda t: t.add_(others))
    objective.epoch_end(None)
    assert objective.counts.tolist() == [1, 1, 1, 0] and objective.fresh.sum() == 0


def test_crl_needs_setup():
    with pytest.raises(ValueError, match="call setup first"):
        CRL().prepare(None, BATCH)


# Mixup and MIT-L


def test_mixed_labels_by_hand(fixture_f):
    logits, labels = fixture_f
    partner = labels.roll(-1)
    share = torch.tensor(0.7, dtype=torch.float64)
    identity = nn.Identity()
    found = Mixup()(identity, (logits, labels, partner, share))
    assert found.item() == pytest.approx(1.12262214, abs=1e-6)
    target = 0.7 * F.one_hot(labels, 3) + 0.3 * F.one_hot(partner, 3)
    torch.testing.assert_close(found, F.cross_entropy(logits, target.double()))


def test_a_share_of_one_is_cross_entropy():
    model, objective = tiny(), Mixup(alpha=0)
    loss = objective(model, objective.prepare(model, BATCH))
    assert torch.equal(loss, CE(model(BATCH[0]), BATCH[1]))


def test_shares_are_folded_and_spread_as_beta_is():
    objective = Mixup(alpha=1.0, seed=3)
    draws = torch.stack([objective.beta(1.0) for _ in range(2000)])
    assert 0.47 < draws.mean() < 0.53 and 0.07 < draws.var() < 0.096  # uniform: 1/12
    narrow = torch.stack([objective.beta(0.2) for _ in range(2000)])
    assert narrow.var().item() == pytest.approx(1 / (4 * 1.4), rel=0.1)  # 1/(4 (2 alpha + 1))
    assert all(objective.prepare(tiny(), BATCH)[3] >= 0.5 for _ in range(50))


def test_small_alphas_mix_nothing():
    """Both gammas are 0 in float64 there; their share is 0 or 1, never 1/2."""
    objective = Mixup(alpha=1e-4)
    draws = torch.stack([objective.beta(1e-4) for _ in range(200)])
    assert ((draws < 1e-6) | (draws > 1 - 1e-6)).double().mean() > 0.95
    assert 0.35 < draws.mean() < 0.65
    third = torch.stack([objective.beta(1e-3) for _ in range(2000)])
    assert third.var().item() == pytest.approx(1 / (4 * 1.002), rel=0.02)


@pytest.mark.parametrize(("alpha", "gap"), [(0.5, 0.5), (1.0, 0.5), (3.0, 0.5), (20.0, 0.1)])
def test_the_chance_that_shares_lie_apart(alpha, gap):
    draws = scipy.stats.beta(alpha, alpha).rvs((2, 100_000), random_state=0)
    folded = abs(draws - 0.5).sum(0)
    assert far_apart(alpha, gap) == pytest.approx((folded >= gap).mean(), abs=0.006)
    one, two = MIT(alpha=alpha, gap=gap).shares()
    assert one - two >= gap


@pytest.mark.parametrize("kind", [Mixup, MIT])
def test_draws_go_on_where_the_state_was_taken(kind):
    one, two, model = kind(seed=1), kind(seed=2), tiny()
    one.prepare(model, BATCH)
    two.load_state_dict(one.state_dict())
    for a, b in zip(one.prepare(model, BATCH), two.prepare(model, BATCH), strict=True):
        assert torch.equal(a, b)
    other = kind(seed=5).prepare(model, BATCH)
    assert not torch.equal(other[0], kind(seed=6).prepare(model, BATCH)[0])


def test_unmixing_by_hand():
    o1, o2 = torch.tensor([1.0, 0.0]), torch.tensor([0.2, 0.9])
    l1, l2 = torch.tensor(0.8), torch.tensor(0.3)
    a, b = unmixed(o1, o2, l1, l2)
    assert a.tolist() == pytest.approx([1.32, -0.36]) and b.tolist() == pytest.approx([-0.28, 1.44])
    torch.testing.assert_close(mixed(a, b, l1), o1)
    torch.testing.assert_close(mixed(a, b, l2), o2)


def test_an_affine_network_is_unmixed_exactly():
    model, objective = tiny().double(), MIT(seed=4)
    batch = (BATCH[0].double(), *BATCH[1:])
    first, second, labels, others, one, two = objective.prepare(model, batch)
    own, _ = unmixed(model(first), model(second), one, two)
    torch.testing.assert_close(own, model(batch[0]))
    assert one >= 0.5 >= two and one - two >= 0.5
    loss = objective(model, (first, second, labels, others, one, two))
    torch.testing.assert_close(loss, CE(model(batch[0]), batch[1]))  # partners: the same rows


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mixup(alpha=-1), "alpha must not be negative"),
        (lambda: MIT(gap=0.0), "0 < gap < 1"),
        (lambda: CRL(weight=-1), "weight must not be negative"),
        (lambda: CRL(score="luck"), "score must be one of"),
        (lambda: AdaFocal(bins=0), "bins >= 1"),
        (lambda: AdaFocal(least=5.0, most=1.0), "least <= start <= most"),
        (lambda: Mixup(alpha=math.inf), "nor infinite"),
        (lambda: MIT(alpha=200.0), "next to never 0.5 apart"),
    ],
)
def test_mistakes_say_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()
