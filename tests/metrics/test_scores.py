"""Scores and rankings against torch, scikit-learn and torchmetrics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from torch import tensor

from toosure import metrics
from toosure.metrics.ranking import auroc


def rows(n=400, classes=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return 1.5 * logits, labels


def test_scores_against_torch():
    logits, labels = rows()
    probs = logits.softmax(1)
    expected = torch.nn.functional.cross_entropy(logits, labels)
    assert float(metrics.nll(logits, labels)) == pytest.approx(float(expected), abs=1e-12)
    onehot = torch.nn.functional.one_hot(labels, 5)
    expected = (probs - onehot).square().sum(1).mean()
    assert float(metrics.brier(logits, labels)) == pytest.approx(float(expected), abs=1e-12)
    expected = torch.distributions.Categorical(probs).entropy().mean()
    assert float(metrics.entropy(logits)) == pytest.approx(float(expected), abs=1e-12)
    true = probs[range(400), labels]
    expected = torch.distributions.Bernoulli(true).entropy().mean()
    assert float(metrics.binary_entropy(logits, labels)) == pytest.approx(float(expected), abs=1e-9)
    accuracy = (logits.argmax(1) == labels).double().mean()
    assert float(metrics.accuracy(logits, labels)) == float(accuracy)


@pytest.mark.parametrize("classes", [10, 100])
def test_nll_of_float32_is_as_good_as_torchs(classes):
    """Large logits whose difference is small: logsumexp(z) - z_y would keep only their digits."""
    generator = torch.Generator().manual_seed(0)
    logits = 1000 + 3 * torch.randn(5000, classes, generator=generator)
    labels = logits.argmax(1)
    exact = torch.nn.functional.cross_entropy(logits.double(), labels)
    assert float(metrics.nll(logits, labels)) == pytest.approx(float(exact), rel=1e-6)


def test_scores_have_gradients():
    logits, labels = rows(6)
    logits[2] = tensor([1.0, 1.0, 0.0, 0.0, 0.0])  # two largest
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: metrics.nll(z, labels), (logits,))


def test_binary_entropy_of_a_near_certain_row():
    logits = tensor([[40.0, 0.0]]).double()
    small = math.exp(-40)
    expected = small * 40 + small  # -(1-e) log(1-e) is e to first order
    assert float(metrics.binary_entropy(logits, tensor([0]))) == pytest.approx(expected, rel=1e-9)
    logits, small = tensor([[20.0, 0.0, 0.0]]), 2 * math.exp(-20)  # float32, where 1 - p is 0
    expected = small * (1 - math.log(small))
    assert float(metrics.binary_entropy(logits, tensor([0]))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("split_of", [metrics.nll_split, metrics.brier_split])
def test_split_adds_up_and_finds_the_temperature(split_of):
    logits, labels = rows(4000)
    split = split_of(logits, labels)
    assert float(split.calibration + split.refinement) == pytest.approx(float(split.score))
    assert float(split.temperature) == pytest.approx(1.5, abs=0.1)  # the logits are 1.5 too large
    again = split_of(logits / split.temperature, labels)
    assert 0 <= float(again.calibration) < 1e-9
    assert float(again.refinement) == pytest.approx(float(split.refinement), abs=1e-9)
    score = {metrics.nll_split: metrics.nll, metrics.brier_split: metrics.brier}[split_of]
    nearby = [float(score(logits / (split.temperature * f), labels)) for f in (0.99, 1.01)]
    assert min(nearby) > float(split.refinement)


def test_the_split_of_an_impossible_label():
    split = metrics.nll_split(tensor([[0.0, -math.inf], [1.0, 0.0]]), tensor([1, 0]))
    assert [float(each) for each in split] == [math.inf, 0, math.inf, 1]


def test_nll_of_an_impossible_label_is_infinite():
    logits = tensor([[0.0, -math.inf]])
    assert float(metrics.nll(logits, tensor([1]))) == math.inf


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_auroc_against_scikit_learn(positive, negative):
    ours = auroc(tensor(positive).double(), tensor(negative).double())
    expected = roc_auc_score([1] * len(positive) + [0] * len(negative), positive + negative)
    assert float(ours) == pytest.approx(expected, abs=1e-12)


def test_auroc_of_classes_against_scikit_learn():
    logits, labels = rows()
    probs = logits.softmax(1).numpy()
    expected = roc_auc_score(labels, probs, multi_class="ovr", average="macro")
    assert float(metrics.auroc_ovr(logits, labels)) == pytest.approx(expected, abs=1e-12)
    coarse = np.floor(probs * 14)
    each = [roc_auc_score(labels == k, coarse[:, k]) for k in range(5)]
    ours = metrics.auroc_ovr_binned(logits, labels, reduction="none")
    assert ours.tolist() == pytest.approx(each, abs=1e-12)


def test_coarse_auroc_against_torchmetrics():
    from torchmetrics.functional.classification import multiclass_auroc

    logits, labels = rows()
    expected = multiclass_auroc(logits.softmax(1), labels, 5, thresholds=15)
    assert float(metrics.auroc_ovr_binned(logits, labels)) == pytest.approx(
        float(expected), abs=1e-6
    )


def test_absent_classes_leave_the_mean_alone():
    logits, labels = rows()
    wider = torch.cat([logits, torch.full((400, 1), -50.0).double()], 1)
    per_class = metrics.auroc_ovr(wider, labels, reduction="none")
    assert per_class[5].isnan()
    assert float(metrics.auroc_ovr(wider, labels)) == pytest.approx(float(per_class[:5].mean()))


def test_misclassification_against_scikit_learn():
    logits, labels = rows()
    confidence, correct = metrics.top_label(logits, labels)
    expected = roc_auc_score(correct, confidence)
    assert float(metrics.auroc_misclass(logits, labels)) == pytest.approx(expected, abs=1e-12)
    assert metrics.auroc_misclass(logits, logits.argmax(1)).isnan()


def test_aurc_by_hand_and_with_ties():
    confidence = tensor([0.9, 0.8, 0.7, 0.6])
    correct = tensor([True, False, True, True])
    expected = (0 + 1 / 2 + 1 / 3 + 1 / 4) / 4
    assert float(metrics.aurc_from_confidence(confidence, correct)) == pytest.approx(expected)
    curve = metrics.accuracy_coverage_from_confidence(confidence, correct)
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.accuracy.tolist() == pytest.approx([1, 1 / 2, 2 / 3, 3 / 4])
    tied = metrics.aurc_from_confidence(torch.full((4,), 0.5), correct)
    assert float(tied) == pytest.approx(0.25)  # every subset errs as all do


@pytest.mark.parametrize("score", ["confidence", "entropy", "energy", "margin"])
def test_ood_against_scikit_learn(score):
    inside, _ = rows(300)
    outside = torch.randn(200, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    values = {
        "confidence": lambda z: z.softmax(1).amax(1),
        "entropy": lambda z: -torch.special.entr(z.softmax(1)).sum(1),
        "energy": lambda z: z.logsumexp(1),
        "margin": lambda z: z.sort(1).values.diff(dim=1)[:, -1],
    }[score]
    truth = [1] * 300 + [0] * 200
    scores = torch.cat([values(inside), values(outside)]).numpy()
    assert float(metrics.auroc_ood(inside, outside, score)) == pytest.approx(
        roc_auc_score(truth, scores), abs=1e-12
    )
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    expected = fpr[tpr >= 0.95].min()
    assert float(metrics.fpr95_ood(inside, outside, score)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("score", ["confidence", "entropy", "energy", "margin"])
@pytest.mark.parametrize("metric", [metrics.auroc_ood, metrics.fpr95_ood])
def test_ood_of_two_precisions(metric, score):
    """The same logits in float32 and float64 are the same scores, not all a little above."""
    inside = 3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    expected = metric(inside, inside, score)
    assert metric(inside, inside.double(), score) == expected
    assert metric(inside.double(), inside, score) == expected


def test_fpr95_accepts_what_lies_on_the_threshold():
    same = torch.tensor([[2.0, 0.0]]).repeat(30, 1)
    assert float(metrics.fpr95_ood(same, same)) == 1
    assert float(metrics.auroc_ood(same, same)) == 0.5


@pytest.mark.parametrize("metric", [metrics.auroc_misclass, metrics.aurc], ids=lambda m: m.__name__)
def test_rankings_go_on_where_confidence_is_rounded_to_one(metric):
    """From a margin of 17 every float32 confidence is 1, from 37 every float64 one."""
    margins = torch.linspace(5, 80, 500)
    logits = torch.stack([margins, torch.zeros(500)], 1)
    correct = torch.rand(500, generator=torch.Generator().manual_seed(0)) < 0.9 - margins / 200
    expected = {
        metrics.auroc_misclass: roc_auc_score(correct, margins),
        metrics.aurc: float(metrics.aurc_from_confidence(margins / 80, correct)),
    }[metric]
    assert float(metric(logits, (~correct).long())) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e4, 1e8, 1e30])
@pytest.mark.parametrize("split", [metrics.nll_split, metrics.brier_split])
def test_a_split_does_not_depend_on_the_size_of_the_logits(split, size):
    """The best temperature grows with the logits, without bounds; refinement stays as it is."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(300, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    expected = split(logits, labels)
    scaled = split(size * logits, labels)
    assert float(scaled.refinement) == pytest.approx(float(expected.refinement), rel=1e-9)
    assert float(scaled.temperature) == pytest.approx(size * float(expected.temperature), rel=1e-4)


@pytest.mark.parametrize("split", [metrics.nll_split, metrics.brier_split])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_a_split_without_a_best_temperature(split, size):
    logits = size * torch.tensor([[1.0, 0.0, -1.0], [-1.0, 0.5, 0.25]]).double()
    wrong = split(logits, logits.argmin(1))  # no finite temperature makes up for that
    uniform = math.log(3) if split is metrics.nll_split else 2 / 3
    assert float(wrong.refinement) == pytest.approx(uniform, rel=1e-9)
    assert float(split(logits, logits.argmax(1)).refinement) == pytest.approx(0, abs=1e-12)


def test_auroc_ovr_tells_saturated_rows_apart():
    logits = torch.tensor([[25.0, 0.0], [20.0, 0.0], [30.0, 0.0], [18.0, 0.0]])
    assert float(metrics.auroc_ovr(logits, torch.tensor([0, 1, 0, 1]))) == 1

    logits = 30 * torch.randn(2000, 5, generator=torch.Generator().manual_seed(0))
    labels = logits.argmax(1).roll(1)
    exact = metrics.auroc_ovr(logits.double(), labels)
    assert float(metrics.auroc_ovr(logits, labels)) == pytest.approx(float(exact), abs=1e-12)
