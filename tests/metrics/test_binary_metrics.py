"""One output per example: the same numbers as two columns, and as scikit-learn gives."""

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from toosure import metrics
from toosure.binary import two_column_probs, two_columns
from toosure.metrics import streaming

generator = torch.Generator().manual_seed(0)
Z = 2 * torch.randn(300, generator=generator, dtype=torch.float64)
P = Z.sigmoid()
Y = (torch.rand(300, generator=generator) < torch.sigmoid(Z / 2)).long()
OF_PAIRS = [
    "accuracy",
    "adaptive_ece",
    "aurc",
    "auroc_misclass",
    "auroc_ovr",
    "auroc_ovr_binned",
    "binary_brier",
    "binary_entropy",
    "brier",
    "brier_split",
    "class_gap",
    "class_one",
    "classwise_ece",
    "debiased_ece",
    "dece",
    "ece",
    "entropy",
    "kde_ece",
    "mce",
    "median_distance",
    "mmce",
    "nll",
    "nll_split",
    "reliability",
    "rmsce",
    "sece",
    "skce",
    "smece",
    "soft_correct",
    "top_label",
]
STREAMING = {
    name: getattr(streaming, name)
    for name in ("ECE", "MCE", "AdaptiveECE", "NLL", "Brier", "Accuracy", "ReliabilityTable")
} | {"ClasswiseECE": lambda: streaming.ClasswiseECE(classes=2)}


def same(value, expected):
    parts = [value] if isinstance(value, torch.Tensor) else list(value)
    others = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for ours, theirs in zip(parts, others, strict=True):
        assert torch.allclose(ours.double(), theirs.double(), rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", OF_PAIRS)
def test_one_column_is_two_columns(name):
    metric = getattr(metrics, name)
    expected = metric(two_columns(Z), Y)
    for logits, labels in [(Z, Y), (Z[:, None], Y.bool()), (Z.numpy(), Y[:, None].numpy())]:
        same(metric(logits, labels), expected)

    expected = metric(probs=two_column_probs(P), labels=Y)
    for probs, labels in [(P, Y.double()), (P[:, None], Y[:, None]), (P.numpy(), Y.bool().numpy())]:
        same(metric(probs=probs, labels=labels), expected)


@pytest.mark.parametrize("name", STREAMING)
def test_streaming_takes_one_column(name):
    expected = STREAMING[name]()
    changed = Z.clone()
    changed[100:101] = Z[100:101].abs() / 10  # a batch of one that lies in [0, 1], by chance
    expected.update(two_columns(changed), Y)
    metric = STREAMING[name]()
    metric.update(Z[:100, None], Y[:100, None])
    metric.update(Z[100:101].abs() / 10, Y[100:101].bool())
    metric.update(Z[101:], Y[101:].double())
    same(metric.compute(), expected.compute())

    metric = STREAMING[name]()
    metric.update(probs=changed.sigmoid(), labels=Y)
    same(metric.compute(), expected.compute())
    with pytest.raises(ValueError, match="all lie in"):
        STREAMING[name]().update(P, Y)


def test_streaming_knows_how_many_classes_one_column_is():
    with pytest.raises(ValueError, match="expected 3 classes; got 2"):
        streaming.ClasswiseECE(classes=3).update(Z, Y)


@pytest.mark.parametrize("metric", [metrics.auroc_ood, metrics.fpr95_ood])
def test_out_of_distribution_scores(metric):
    others = Z / 3
    same(metric(Z, others), metric(two_columns(Z), two_columns(others)))
    same(metric(probs=P, ood_probs=others.sigmoid()), metric(Z, others))
    with pytest.raises(ValueError, match="all lie in"):
        metric(P, others.sigmoid())


@pytest.mark.parametrize("name", ["ece", "smece", "nll", "brier", "aurc", "classwise_ece"])
def test_intervals(name):
    metric = getattr(metrics, name)
    options = {"samples": 20}
    expected = metrics.confidence_interval(metric, two_columns(Z), Y, **options)
    same(metrics.confidence_interval(metric, Z, Y.bool(), **options), expected)
    probs = metrics.confidence_interval(metric, probs=two_column_probs(P), labels=Y, **options)
    same(metrics.confidence_interval(metric, probs=P, labels=Y, **options), probs)
    with pytest.raises(ValueError, match="all lie in"):
        metrics.confidence_interval(metric, P, Y, **options)


def test_scores_are_those_of_scikit_learn():
    p, y = P.numpy(), Y.numpy()
    for given in ({"logits": Z}, {"probs": P}):
        assert float(metrics.binary_brier(**given, labels=Y)) == pytest.approx(
            brier_score_loss(y, p), abs=1e-12
        )
        assert float(metrics.brier(**given, labels=Y)) == pytest.approx(
            2 * brier_score_loss(y, p), abs=1e-12
        )
        assert float(metrics.nll(**given, labels=Y)) == pytest.approx(log_loss(y, p), abs=1e-12)
        assert float(metrics.auroc_ovr(**given, labels=Y)) == pytest.approx(
            roc_auc_score(y, p), abs=1e-12
        )


@pytest.mark.parametrize("bins", [10, 15])
def test_reliability_of_class_one_is_scikit_learns_calibration_curve(bins):
    pair = metrics.class_one(probs=P, labels=Y)
    table = metrics.reliability_from_confidence(*pair, bins=bins)
    filled = table.counts > 0
    truth, mean = calibration_curve(Y.numpy(), P.numpy(), n_bins=bins)
    assert table.accuracy[filled].numpy() == pytest.approx(truth, abs=1e-12)
    assert table.confidence[filled].numpy() == pytest.approx(mean, abs=1e-12)


def test_class_one_of_extreme_logits_and_of_more_classes():
    p, true = metrics.class_one(torch.tensor([-800.0, 800.0, 0.0]), [False, True, True])
    assert p.tolist() == [0, 1, 0.5] and true.tolist() == [False, True, True]
    for metric in (metrics.class_one, metrics.binary_brier):
        with pytest.raises(ValueError, match="two classes; got 3"):
            metric(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    with pytest.raises(ValueError, match="row 1 of 2"):
        metrics.class_one(torch.tensor([1.0, torch.nan]), [0, 1])


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (100 * P, r"percentages \(divide them by 100\)"),
        (Z, "these are logits: give them as logits"),
        (torch.full_like(P, torch.nan), "NaN or infinity"),
    ],
)
def test_one_column_that_is_no_probability(probs, message):
    with pytest.raises(ValueError, match=message):
        metrics.ece(probs=probs, labels=Y)


def test_narrow_types_are_taken():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        narrow = P.to(dtype)
        expected = metrics.nll(probs=two_column_probs(narrow.double()), labels=Y)
        value = metrics.nll(probs=narrow, labels=Y)
        assert float(value) == pytest.approx(float(expected), rel=1e-6)
    assert np.isfinite(float(metrics.ece(Z.half(), Y)))
