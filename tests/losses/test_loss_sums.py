"""Losses added up, what they ask of their parts, and what they say of labels they cannot take."""

import pytest
import torch
from torch import nn

from toosure.losses import (
    LOSSES,
    BrierLoss,
    CrossEntropyLoss,
    CSAMLoss,
    FocalLoss,
    InverseFocalLoss,
    LabelSmoothingLoss,
    MDCALoss,
    MMCELoss,
)
from toosure.losses.loss import Sum, each_of, log_likelihood, per_example_part

OURS = pytest.mark.parametrize("name", [name for name in LOSSES if name != "ce"])


def test_losses_add(fixture_f):
    parts = FocalLoss(2.0), MDCALoss().alone, nn.CrossEntropyLoss()
    both = parts[0] + 0.5 * parts[1] + parts[2]
    wanted = parts[0](*fixture_f) + 0.5 * parts[1](*fixture_f) + parts[2](*fixture_f)
    torch.testing.assert_close(both(*fixture_f), wanted)
    torch.testing.assert_close(
        (nn.CrossEntropyLoss() + 0.5 * parts[1])(*fixture_f), MDCALoss(0.5)(*fixture_f)
    )
    torch.testing.assert_close(
        MDCALoss(0.5, FocalLoss(2.0))(*fixture_f), (parts[0] + parts[1] * 0.5)(*fixture_f)
    )
    assert isinstance(both, Sum) and len(list(both.modules())) > 4
    torch.testing.assert_close(sum([parts[0], 0.5 * parts[1], parts[2]])(*fixture_f), wanted)


def test_a_sum_can_be_weighed_by_csam(fixture_f):
    both = FocalLoss(2.0) + 0.5 * BrierLoss()
    both.reduction = "mean"
    each = FocalLoss(2.0, "none")(*fixture_f) + 0.5 * BrierLoss("none")(*fixture_f)
    p = fixture_f[0].softmax(1)[range(4), fixture_f[1]]
    weight = torch.where(p <= 0.5, 1.0, 1 / (1 + p))
    torch.testing.assert_close(CSAMLoss(both, 1.0)(*fixture_f), (weight * each).mean())


def test_what_cannot_be_added_says_so():
    with pytest.raises(ValueError, match=r"a \+ 0.5 \* b; got float \* int"):
        FocalLoss() + 3
    with pytest.raises(ValueError, match="class weights"):
        FocalLoss() + nn.CrossEntropyLoss(torch.ones(3))
    with pytest.raises(ValueError, match="must offer reduction"):
        MDCALoss(base=nn.Linear(2, 2))


def test_cross_entropy_is_a_term_too(fixture_f):
    wanted = FocalLoss()(*fixture_f) + 0.5 * nn.CrossEntropyLoss()(*fixture_f)
    torch.testing.assert_close((FocalLoss() + 0.5 * CrossEntropyLoss())(*fixture_f), wanted)
    torch.testing.assert_close((0.5 * CrossEntropyLoss() + FocalLoss())(*fixture_f), wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FocalLoss(reduction="sum") + BrierLoss(),
        lambda: BrierLoss() + FocalLoss(reduction="sum"),
        lambda: nn.CrossEntropyLoss(reduction="sum") + BrierLoss(),
        lambda: BrierLoss() + 0.5 * FocalLoss(reduction="sum"),
        lambda: MDCALoss(base=FocalLoss(reduction="sum")),
        lambda: MDCALoss(base=FocalLoss(), reduction="sum"),
    ],
)
def test_parts_must_reduce_alike(make):
    with pytest.raises(ValueError, match="must reduce alike; got mean and sum"):
        make()


def test_a_sum_keeps_the_reduction_of_its_parts(fixture_f):
    total = FocalLoss(reduction="sum") + 0.5 * MDCALoss(reduction="sum").alone
    mean = FocalLoss() + 0.5 * MDCALoss().alone
    torch.testing.assert_close(total(*fixture_f), 4 * mean(*fixture_f))
    torch.testing.assert_close(
        per_example_part(total)(*fixture_f), FocalLoss(reduction="sum")(*fixture_f)
    )
    assert per_example_part(MMCELoss(reduction="sum")).reduction == "sum"


@pytest.mark.parametrize("kind", [FocalLoss, InverseFocalLoss, LabelSmoothingLoss])
def test_a_setting_of_each_example_has_the_labels_shape(kind, fixture_f):
    setting = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    kind(setting)(*fixture_f)
    for loss in (kind(setting[:, None]), FocalLoss() + kind(setting[:, None])):
        with pytest.raises(ValueError, match=r"one value per example, \(4,\); got \(4, 4\)"):
            loss(*fixture_f)


@OURS
@pytest.mark.parametrize("label", [-100, -1, 3])
def test_no_label_is_ignored(name, label, fixture_f):
    logits, labels = fixture_f
    labels = labels.clone()
    labels[1] = label
    with pytest.raises(ValueError, match=r"labels must be in \[0, 3\); got"):
        LOSSES[name]()(logits, labels)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), CrossEntropyLoss(), FocalLoss()])
def test_nor_is_it_where_labels_are_not_looked_at(loss, fixture_f):
    """As on a GPU: the lookup itself fails."""
    logits, labels = fixture_f[0], torch.tensor([0, -100, 2, 1])
    with pytest.raises(IndexError, match="out of bounds"):
        each_of(loss, logits, labels)
    with pytest.raises(IndexError, match="out of bounds"):
        log_likelihood(logits, labels)


@OURS
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_any_integers_are_labels(name, dtype, fixture_f):
    logits, labels = fixture_f
    loss = LOSSES[name]()
    assert torch.equal(loss(logits, labels.to(dtype)), loss(logits, labels))


def test_losses_compile_in_one_piece_and_map_over_rows(fixture_f):
    logits, labels = fixture_f
    whole = torch.compile(FocalLoss(), backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(logits, labels), FocalLoss()(logits, labels))
    rows = torch.func.vmap(lambda z, y: FocalLoss()(z[None], y[None]))(logits, labels)
    torch.testing.assert_close(rows, FocalLoss(reduction="none")(logits, labels))
