"""Every figure and identity of the published losses, on rows known by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure import metrics
from toosure.config import RunConfig
from toosure.losses import (
    LOSSES,
    ACLSLoss,
    BrierLoss,
    CPCLoss,
    CSAMLoss,
    DCALoss,
    DECELoss,
    DualFocalLoss,
    EntropyLoss,
    FLSD53Loss,
    FocalLoss,
    InverseFocalLoss,
    LabelSmoothingLoss,
    MbLSLoss,
    MDCALoss,
    MMCELoss,
    MSELoss,
    SECELoss,
    SKCELoss,
    SoftBinnedECELoss,
)
from toosure.losses.loss import per_example_part
from toosure.losses.pairwise import discrimination, exclusion
from toosure.train import Runtime, train

CE = 0.68762214
FIGURES = [
    (nn.CrossEntropyLoss(), CE),
    (nn.CrossEntropyLoss(reduction="sum"), 2.75048856),
    (FocalLoss(1.0), 0.44765153),
    (FocalLoss(2.0), 0.31635537),
    (FocalLoss(3.0), 0.2304934),
    (FLSD53Loss(), 0.2304934),
    (DualFocalLoss(2.0, reduction="sum"), 1.42221995),
    (DualFocalLoss(5.0, reduction="sum"), 0.60609583),
    (LabelSmoothingLoss(0.05), 0.73387214),
    (LabelSmoothingLoss(0.1), 0.78012214),
    (LabelSmoothingLoss(0.05, "others"), 0.75699714),
    (LabelSmoothingLoss(0.1, "others"), 0.82637214),
    (MbLSLoss(margin=1.0).alone, 0.625),
    (MbLSLoss(margin=1.0), 0.75012214),
    (ACLSLoss(margin=1.0, rest=0.0).alone, 1.26),
    (ACLSLoss(margin=1.0, top=0.0, rest=1.0).alone, 1.84375),
    (ACLSLoss(margin=1.0).alone, 1.444375),
    (ACLSLoss(margin=1.0), 0.83205964),
    (MDCALoss().alone, 0.11776691),
    (MDCALoss(), 0.80538904),
    (DCALoss().alone, 0.18502704),
    (CPCLoss(discrimination=1.0, exclusion=0.0).alone, 0.41912953),
    (CPCLoss(discrimination=0.0).alone, 0.42475053),
    (CPCLoss(discrimination=0.0, diagonal=True).alone, 0.77132412),
    (CPCLoss(diagonal=True), 1.50085921),
    (MMCELoss(weighted=False).alone, 0.22237769),
    (MMCELoss(weighted=False, normalization="reference").alone, 0.04945184),
    (MMCELoss().alone, 0.44475537),
    (MMCELoss(normalization="reference").alone, 0.22237741),
    (MMCELoss(), CE + 2 * 0.44475537),
    (SKCELoss().alone, 0.06659517),
    (SKCELoss(estimator="unbiased").alone, -0.0492103),
    (SKCELoss(estimator="linear").alone, -0.00046618),
    (DECELoss().alone, 0.32921968),
    (DECELoss(accuracy_slope=1e4).alone, 0.32925454),
    (DECELoss(), CE + 0.5 * 0.32921968),
    (SECELoss().alone, 0.32925889),
    (SECELoss(bandwidth=0.05).alone, 0.32925683),
    (SECELoss(bandwidth=0.1).alone, 0.31076369),
    (SECELoss(bandwidth=0.3).alone, 0.18787399),
    (SECELoss(bandwidth=1e6).alone, 0.19015238),
    (SECELoss(form="grid").alone, 0.41686921),
    (SECELoss(bandwidth=0.05, form="grid").alone, 0.33137423),
    (SECELoss(bandwidth=0.1, form="grid").alone, 0.30161561),
    (CSAMLoss(gamma=0.5), 0.66706579),
    (CSAMLoss(gamma=1.0), 0.65183165),
    (CSAMLoss(gamma=2.0), 0.63216509),
]


@pytest.mark.parametrize(("loss", "figure"), FIGURES, ids=lambda v: f"{v}"[:40].split("\n")[0])
def test_figures_on_the_fixture(loss, figure, fixture_f):
    assert float(loss(*fixture_f)) == pytest.approx(figure, abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "figure"),
    [
        (nn.CrossEntropyLoss(), 1.71904163),
        (MbLSLoss(margin=6.0), 2.09404163),
        (MbLSLoss(margin=6.0).alone, 3.75),
        (MbLSLoss(), 1.94404163),
        (MbLSLoss().alone, 2.25),
        (ACLSLoss(rest=0.0).alone, 17.0),
        (ACLSLoss(top=0.0, rest=1.0).alone, 31.125),
        (ACLSLoss().alone, 20.1125),
        (ACLSLoss(), 3.73029163),
        (ACLSLoss(margin=6.0).alone, 51.9975),
        (ACLSLoss(margin=6.0), 6.91879163),
    ],
)
def test_figures_on_six_times_the_fixture(loss, figure, fixture_f):
    logits, labels = fixture_f
    assert float(loss(6 * logits, labels)) == pytest.approx(figure, abs=1e-6)


def binary(p):
    """Two classes, the first of probability p."""
    p = torch.tensor(p, dtype=torch.float64)
    return torch.stack([p.log(), (1 - p).log()], 1), torch.zeros(len(p), dtype=torch.long)


def test_flsd_chooses_gamma_by_the_probability():
    logits, labels = binary([0.1, 0.2 + 1e-12, 0.35, 0.5 + 1e-12, 0.9])
    loss = FLSD53Loss(reduction="none")
    assert loss.gammas(logits.softmax(1)[:, 0]).tolist() == [5, 3, 3, 3, 3]
    wanted = [1.35965347, 0.82403221, 0.2883074, 0.0866434, 0.00010536]
    assert loss(logits, labels).tolist() == pytest.approx(wanted, abs=1e-6)
    assert FLSD53Loss(2.0).gammas(torch.tensor([0.1, 0.3, 0.6])).tolist() == [5, 3, 2]


@pytest.mark.parametrize(
    ("p", "gamma", "ratio"), [(0.2, 5, 0.98690577), (0.5, 3, 0.38493019), (0.9, 3, 0.00384473)]
)
def test_focal_gradient_is_a_multiple_of_cross_entropy(p, gamma, ratio):
    logits, labels = binary([p])
    logits.requires_grad_()
    (focal,) = torch.autograd.grad(FocalLoss(gamma)(logits, labels), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    torch.testing.assert_close(focal, ratio * plain, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("p0", "gamma"),
    [
        (0.1, 14.92399265),
        (0.2, 4.85055445),
        (0.25, 3.0702271),
        (0.3, 1.95716981),
        (0.4, 0.68050762),
    ],
)
def test_flsd_gammas_are_roots(p0, gamma):
    """At these gammas focal loss pulls exactly as hard as cross-entropy."""
    logits, labels = binary([p0])
    logits.requires_grad_()
    (focal,) = torch.autograd.grad(FocalLoss(gamma)(logits, labels), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    torch.testing.assert_close(focal, plain, rtol=1e-6, atol=1e-8)


def test_focal_slope_in_gamma():
    """d/dgamma -(1-p)^gamma log p = -(1-p)^gamma log(1-p) log p <= 0."""
    logits, labels = binary([0.1, 0.5, 0.9])
    gamma = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(FocalLoss(gamma, "sum")(logits, labels), gamma)
    p = logits.softmax(1)[:, 0]
    torch.testing.assert_close(slope, -((1 - p) ** gamma.detach()) * (1 - p).log() * p.log())


def test_dual_focal_looks_below_the_label(fixture_f):
    logits, labels = fixture_f
    probs = logits.softmax(1)
    below = torch.tensor([0.17529039, 0.0, 0.0460998, 0.10927784], dtype=torch.float64)
    p = probs[range(4), labels]
    wanted = -((1 - p + below) ** 2) * p.log()
    torch.testing.assert_close(DualFocalLoss(2.0, "none")(logits, labels), wanted)
    torch.testing.assert_close(  # row 1 has nothing below its label
        DualFocalLoss(2.0)(logits[1:2], labels[1:2]), FocalLoss(2.0)(logits[1:2], labels[1:2])
    )


def test_inverse_focal_is_what_adafocal_takes_below_zero():
    loss = InverseFocalLoss(1.5)(*binary([0.7]))
    assert float(loss) == pytest.approx(0.79058029, abs=1e-6)
    assert float(FocalLoss(1.5)(*binary([0.7]))) == pytest.approx(0.05860767, abs=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        FocalLoss(0.0),
        FocalLoss(torch.zeros(4)),
        DualFocalLoss(0.0),
        InverseFocalLoss(0.0),
        LabelSmoothingLoss(0.0),
        LabelSmoothingLoss(0.0, "others"),
        EntropyLoss(0.0),
        MbLSLoss(margin=math.inf),
        ACLSLoss(margin=math.inf),
        ACLSLoss(weight=0.0),
        MDCALoss(0.0),
        MMCELoss(0.0),
        CPCLoss(0.0, 0.0),
        CSAMLoss(gamma=0.0),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_limits_are_cross_entropy_bit_for_bit(loss, fixture_f):
    logits, labels = fixture_f
    for dtype in (torch.float32, torch.float64):
        z = logits.to(dtype).requires_grad_()
        plain = F.cross_entropy(z, labels)
        found = loss(z, labels)
        assert torch.equal(found, plain)
        torch.testing.assert_close(
            torch.autograd.grad(found, z), torch.autograd.grad(plain, z), rtol=0, atol=1e-16
        )


def test_smoothing_conventions(fixture_f):
    logits, labels = fixture_f
    for share in (0.03, 0.1, 0.5):
        torch_own = F.cross_entropy(logits, labels, label_smoothing=share)
        torch.testing.assert_close(LabelSmoothingLoss(share)(logits, labels), torch_own)
        torch.testing.assert_close(
            LabelSmoothingLoss(share, "others")(logits, labels),
            LabelSmoothingLoss(share * 3 / 2)(logits, labels),
        )
    several = torch.tensor([0.0, 0.1, 0.2, 0.3], dtype=torch.float64)
    found = LabelSmoothingLoss(several, reduction="none")(logits, labels)
    for row, share in enumerate(several.tolist()):
        one = F.cross_entropy(logits[row], labels[row], label_smoothing=share)
        torch.testing.assert_close(found[row], one)


def test_entropy_brier_and_squares_agree_with_the_metrics(fixture_f):
    logits, labels = fixture_f
    wanted = metrics.nll(logits, labels) - 0.3 * metrics.entropy(logits)
    torch.testing.assert_close(EntropyLoss(0.3)(logits, labels), wanted)
    torch.testing.assert_close(BrierLoss()(logits, labels), metrics.brier(logits, labels))
    onehot = F.one_hot(labels, 3).double()
    torch.testing.assert_close(MSELoss()(logits, labels), F.mse_loss(logits, onehot))


def test_margin_penalties_ignore_a_shift_where_they_should(fixture_f):
    logits, labels = fixture_f
    moved = logits + 7
    torch.testing.assert_close(
        MbLSLoss(margin=1.0)(moved, labels), MbLSLoss(margin=1.0)(logits, labels)
    )
    least = ACLSLoss(margin=1.0, reference="min")
    torch.testing.assert_close(least(moved, labels), least(logits, labels))
    raw = ACLSLoss(margin=1.0)
    assert raw(moved, labels) > raw(logits, labels) + 1  # the released code is not invariant


def test_acls_stops_the_gradient_through_the_top_of_its_second_term(fixture_f):
    logits, labels = fixture_f
    z = logits.clone().requires_grad_()
    loss = ACLSLoss(top=0.0, rest=1.0, margin=1.0).penalty(z, labels).mean()
    (found,) = torch.autograd.grad(loss, z)
    gaps = (logits.amax(1, keepdim=True) - logits - 1).relu()
    torch.testing.assert_close(found, -2 * gaps / (4 * 2))  # nothing at the top


def test_mdca_is_zero_at_the_frequencies():
    labels = torch.tensor([0, 0, 1, 2])
    logits = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log().expand(4, 3)
    assert float(MDCALoss().penalty(logits, labels)) == pytest.approx(0, abs=1e-15)


def test_pairs_are_cheapest_when_all_wrong_classes_are_equal():
    level = torch.tensor([[3.0, -1.0, -1.0, -1.0]], dtype=torch.float64)
    label = torch.tensor([0])
    assert float(exclusion(level, label)) == pytest.approx(0.5 * math.log(2), abs=1e-12)
    assert float(exclusion(level + torch.tensor([0, 1.0, 0, 0]), label)) > 0.5 * math.log(2)
    constant = exclusion(level, label, diagonal=True) - exclusion(level, label)
    assert float(constant) == pytest.approx(0.5 * math.log(2) / 2, abs=1e-12)


def slow_exclusion(logits, labels):
    """BEC by its definition."""
    n, k = logits.shape
    total = 0.0
    for i in range(n):
        others = [j for j in range(k) if j != labels[i]]
        pairs = [(u, v) for u in others for v in others if u != v]
        total += sum(-0.5 * F.logsigmoid(logits[i, u] - logits[i, v]) for u, v in pairs)
    return total / (n * (k - 1) * (k - 2))


def test_chunked_pairs_equal_the_definition(monkeypatch):
    logits = 3 * torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(7) % 6
    logits.requires_grad_()
    wanted = slow_exclusion(logits, labels)
    for block in (1, 60, 2**24):
        monkeypatch.setattr("toosure.losses.pairwise.MAX_BLOCK", block)
        found = exclusion(logits, labels).mean()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            torch.autograd.grad(found, logits),
            torch.autograd.grad(wanted, logits, retain_graph=True),
        )
    assert torch.autograd.gradgradcheck(lambda z: exclusion(z, labels), logits)


@pytest.mark.parametrize("loss", [MMCELoss(), MMCELoss(weighted=False, normalization="reference")])
def test_a_second_derivative_of_mmce_is_refused_not_left_out(loss):
    logits = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, torch.arange(7) % 4), logits)
    (slope,) = torch.autograd.grad(loss(logits, torch.arange(7) % 4), logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="MMCE has no second derivative"):
        slope.square().sum().backward()


def test_two_classes_have_no_pairs_to_exclude():
    logits, labels = binary([0.3, 0.8])
    assert exclusion(logits, labels).tolist() == [0, 0]
    torch.testing.assert_close(
        discrimination(logits, labels), F.cross_entropy(logits, labels, reduction="none")
    )


def test_weighted_mmce_of_equal_sides_is_twice_the_root(fixture_f):
    plain = MMCELoss(weighted=False).penalty(*fixture_f)
    torch.testing.assert_close(MMCELoss().penalty(*fixture_f), 2 * plain)
    assert float(plain**2) == pytest.approx(0.04945184, abs=1e-6)


@pytest.mark.parametrize("loss", [MMCELoss(), MMCELoss(normalization="reference")])
def test_mmce_of_one_sided_batches(loss, fixture_f):
    logits, _ = fixture_f
    right = float(loss.penalty(logits, logits.argmax(1)))
    assert right == 0 if loss.normalization == "reference" else right > 0


def test_soft_bins_become_bins(fixture_f):
    """As the temperature falls, soft-binned ECE with norm 1 is ECE."""
    loss = SoftBinnedECELoss(norm=1, temperature=1e-7)
    torch.testing.assert_close(loss.penalty(*fixture_f), metrics.ece(*fixture_f).double())
    two = SoftBinnedECELoss(norm=1, bins=2, temperature=1e-7)
    assert float(two.penalty(*fixture_f)) == pytest.approx(0.18502704, abs=1e-6)
    squares = SoftBinnedECELoss(norm=2, temperature=1e-7)
    torch.testing.assert_close(squares.penalty(*fixture_f), metrics.rmsce(*fixture_f).double())


def test_soft_bins_by_hand():
    """Confidences .6 (right) and .9 (wrong), bins about .25 and .75."""
    logits, labels = binary([0.6, 0.1])
    rows, total = ((0.6, 1), (0.9, 0)), 0.0
    for centre in (0.25, 0.75):
        pulls = [
            math.exp(-((c - centre) ** 2) / 0.1)
            / sum(math.exp(-((c - other) ** 2) / 0.1) for other in (0.25, 0.75))
            for c, _ in rows
        ]
        gap = sum(pull * (a - c) for pull, (c, a) in zip(pulls, rows, strict=True)) / sum(pulls)
        total += sum(pulls) / 2 * gap**2
    loss = SoftBinnedECELoss(bins=2, temperature=0.1)
    assert float(loss.penalty(logits, labels)) == pytest.approx(math.sqrt(total), abs=1e-9)


@pytest.mark.parametrize(("weight", "far"), [(1e-2, False), (1e-7, False), (1e-9, True)])
def test_a_row_left_out_sees_its_neighbours_however_faint(weight, far):
    """Rights at .9 and wrongs at .6; their kernel is `weight`. Nobody near: the accuracy, 1/2."""
    logits, labels = binary([0.9, 0.4])
    bandwidth = 0.3 / math.sqrt(-2 * math.log(weight))
    found = SECELoss(bandwidth=bandwidth, leave_one_out=True).penalty(logits, labels)
    wanted = (abs(0.5 - 0.9) + abs(0.5 - 0.6)) / 2 if far else (0.9 + 0.4) / 2
    assert float(found) == pytest.approx(wanted, abs=1e-9)


def test_dece_nears_ece_as_it_hardens(fixture_f):
    hard = DECELoss(accuracy_slope=1e6, bin_temperature=1e-5).penalty(*fixture_f)
    assert float(hard) == pytest.approx(0.32925889, abs=1e-4)


def test_sece_of_equal_confidences_is_the_gap():
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0])
    c = 1 / (1 + math.exp(-1))
    for form in ("points", "grid"):
        found = SECELoss(form=form, bandwidth=0.1).penalty(logits, labels)
        assert float(found) == pytest.approx(abs(2 / 3 - c), abs=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FocalLoss(-1.0), "gamma must not be negative; got -1"),
        (lambda: LabelSmoothingLoss(2.0), "between 0 and 1; got 2"),
        (lambda: LabelSmoothingLoss(0.1, "some"), "over must be one of"),
        (lambda: MMCELoss(-1.0), "weight must not be negative"),
        (lambda: CPCLoss(-1.0), "weights must not be negative"),
        (lambda: SKCELoss(estimator="best"), "estimator must be one of"),
        (lambda: SoftBinnedECELoss(bins=0), "bins must be a positive integer"),
        (lambda: FocalLoss(reduction="max"), "reduction must be one of"),
        (lambda: DECELoss(bin_temperature=0.0), "bin_temperature must be positive; got 0"),
        (lambda: SoftBinnedECELoss(temperature=0.0), "temperature must be positive"),
        (lambda: SECELoss(bandwidth=0.0), "bandwidth must be positive"),
        (lambda: SECELoss(bins=0), "bins must be a positive integer"),
        (lambda: SKCELoss(bandwidth=0.0), "bandwidth must be positive"),
        (lambda: SKCELoss(bandwidth=-1.0), "bandwidth must be positive"),
        (lambda: MMCELoss(bandwidth=0.0), "bandwidth must be at least 0.005"),
    ],
)
def test_mistakes_say_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_every_loss_has_a_figure_here():
    used = {type(getattr(loss, "whole", loss)) for loss, _ in FIGURES}
    elsewhere = {BrierLoss, MSELoss, InverseFocalLoss, EntropyLoss, SoftBinnedECELoss}
    assert set(LOSSES.values()) <= used | elsewhere


def test_the_watch_takes_curvature_of_what_each_example_says(fixture_f):
    """A statistic of the batch has no curvature an example: it is left out, in sums too."""
    assert type(per_example_part(MMCELoss(base=FocalLoss()))) is FocalLoss
    both = FocalLoss(2.0) + 0.5 * MDCALoss().alone + 0.25 * BrierLoss()
    wanted = (FocalLoss(2.0) + 0.25 * BrierLoss())(*fixture_f)
    torch.testing.assert_close(per_example_part(both)(*fixture_f), wanted)
    kept = EntropyLoss()
    assert per_example_part(kept) is kept


@pytest.mark.parametrize("name", ["mmce", "skce", "cpc"])
def test_a_run_is_watched_with_any_loss(name, tmp_path):
    settings = {"data": "digits:train=40,val=20", "model": "mlp:width=4", "steps": 2, "every": 1}
    run = train(RunConfig(**settings, loss=name), tmp_path, Runtime("cpu"))
    assert run.status == "complete" and run.rows[-1]["train/gn_sharpness"] > 0


@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", [FocalLoss, DualFocalLoss])
def test_a_small_gamma_has_no_infinite_slope_at_certainty(kind, gamma):
    """(1 - p)^gamma has one at p = 1, where the loss is 0."""
    logits = torch.tensor([[1e4, 0.0], [50.0, 0.0], [2.0, 0.0]], requires_grad=True)
    loss = kind(gamma)(logits, torch.zeros(3, dtype=torch.long))
    (slope,) = torch.autograd.grad(loss, logits)
    assert slope.isfinite().all() and (slope[:, 0] <= 0).all() and slope[2, 0] < 0


def test_a_learned_gamma_has_a_finite_slope_at_certainty():
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    gamma = torch.tensor([0.0, 2.0], requires_grad=True)
    loss = FocalLoss(gamma, "sum")(logits, torch.zeros(2, dtype=torch.long))
    (slope,) = torch.autograd.grad(loss, gamma)
    assert loss.isfinite() and slope.isfinite().all()


@pytest.mark.parametrize("classes", [10, 100])
def test_the_public_code_of_mmce_leaves_little_of_its_penalty(classes):
    """It divides twice by the counts: with many right and many wrong rows it hardly acts."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(256, classes, generator=generator)
    labels = torch.randint(classes, (256,), generator=generator)
    logits[torch.arange(256), labels] += 2.0 if classes == 10 else 3.0
    assert 0.5 < metrics.accuracy(logits, labels) < 0.8
    formula, code = (
        MMCELoss(normalization=name).penalty(logits, labels) for name in ("paper", "reference")
    )
    assert 100 * code < formula
