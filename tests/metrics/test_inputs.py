"""Wrong input is named, every float type is taken, and no row order or chunk matters."""

import numpy as np
import pytest
import torch
from torch import tensor

from toosure import metrics
from toosure.metrics import confidence as chunks

PAIRED = [
    metrics.accuracy,
    metrics.adaptive_ece,
    metrics.aurc,
    metrics.auroc_misclass,
    metrics.auroc_ovr,
    metrics.auroc_ovr_binned,
    metrics.binary_entropy,
    metrics.brier,
    metrics.brier_split,
    metrics.class_gap,
    metrics.classwise_ece,
    metrics.debiased_ece,
    metrics.dece,
    metrics.ece,
    metrics.kde_ece,
    metrics.mce,
    metrics.mmce,
    metrics.nll,
    metrics.nll_split,
    metrics.reliability,
    metrics.rmsce,
    metrics.sece,
    metrics.skce,
    metrics.smece,
]
ON_LOGITS = [*PAIRED, metrics.entropy, metrics.median_distance]
good = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
LOWER = [getattr(metrics, name) for name in metrics.__all__ if name.endswith("_from_confidence")]
LOWER.remove(metrics.confidence_interval_from_confidence)
BAD = {
    "empty": (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), r"empty.*\(0, 3\)"),
    "one output of three classes": (
        good[0][:, 0],
        good[1],
        r"0 and 1.*got 2 in row 2; of more",
    ),
    "four dimensions": (torch.zeros(2, 3, 4, 4), good[1], r"got \(2, 3, 4, 4\).*flatten_positions"),
    "integer logits": (torch.zeros(12, 3, dtype=torch.long), good[1], "floating point.*int64"),
    "float labels": (good[0], good[1].float(), r"integers in \[0, 3\); got float32: convert them"),
    "boolean labels": (good[0], good[1].bool(), "got bool"),
    "too few labels": (good[0], good[1][:5], r"shape \(12,\).*got \(5,\)"),
    "column of labels": (good[0], good[1][:, None], r"shape \(12,\).*got \(12, 1\)"),
    "one-hot labels": (good[0], torch.eye(3)[good[1]], r"got \(12, 3\): argmax\(1\)"),
    "one column in [0, 1]": (good[0][:, :1].sigmoid(), good[1].bool(), r"probs=p; .*sigmoid\(z\)"),
    "too few binary labels": (good[0][:, 0], good[1][:5].bool(), r"\(12,\) or \(12, 1\); got"),
    "no binary outputs": (torch.zeros(0), torch.zeros(0), "logits are empty"),
    "integer binary outputs": (good[1] % 2, good[1] % 2, "floating point.*int64"),
    "label too high": (good[0], good[1] + 1, r"\[0, 3\); got 1 to 3"),
    "label negative": (good[0], good[1] - 1, r"\[0, 3\); got -1 to 1"),
}


@pytest.mark.parametrize("metric", PAIRED, ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", BAD)
def test_wrong_input_is_named(metric, name):
    logits, labels, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        metric(logits, labels)


@pytest.mark.parametrize("metric", ON_LOGITS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_are_named(metric, value):
    logits = good[0].clone()
    logits[4, 1] = value
    with pytest.raises(ValueError, match=r"finite; row 4 of 12"):
        metric(logits, good[1])


@pytest.mark.parametrize("metric", ON_LOGITS, ids=lambda m: m.__name__)
def test_the_row_is_that_of_the_whole(metric, monkeypatch):
    monkeypatch.setattr(chunks, "_CHUNK_ON_CPU", 5 * 3)
    logits = good[0].clone()
    logits[11, 1] = torch.nan
    with pytest.raises(ValueError, match=r"finite; row 11 of 12"):
        metric(logits, good[1])


@pytest.mark.parametrize("metric", [metrics.auroc_ood, metrics.fpr95_ood])
@pytest.mark.parametrize("score", ["confidence", "entropy", "energy"])
def test_ood_inputs(metric, score):
    broken = good[0].clone()
    broken[3, 0] = torch.nan
    with pytest.raises(ValueError, match="row 3 of 12"):
        metric(good[0], broken, score=score)
    with pytest.raises(ValueError, match="score must be one of"):
        metric(*good, score="odds")


@pytest.mark.parametrize("metric", ON_LOGITS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_float_type(metric, dtype):
    """A narrow type is the same as its values in float64, up to float32 arithmetic."""
    logits = (3 * good[0]).to(dtype)
    narrow, wide = metric(logits, good[1]), metric(logits.double(), good[1])
    for ours, expected in zip(as_list(narrow), as_list(wide), strict=True):
        assert torch.allclose(ours.double(), expected.double(), atol=1e-5, equal_nan=True)


def as_list(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("metric", ON_LOGITS, ids=lambda m: m.__name__)
def test_chunks_do_not_show(metric, monkeypatch):
    logits = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(50) % 3
    whole = metric(logits, labels)
    monkeypatch.setattr(chunks, "_CHUNK_ON_CPU", 7 * 3)
    for ours, expected in zip(as_list(metric(logits, labels)), as_list(whole), strict=True):
        assert torch.allclose(ours, expected, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("metric", ON_LOGITS, ids=lambda m: m.__name__)
def test_zero_probabilities_enter_as_minus_infinity(metric):
    logits = tensor([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.1, 0.0, 0.9]]).double().log()
    value = as_list(metric(logits, tensor([0, 1, 2])))[0]
    if metric is not metrics.auroc_misclass:  # all right: not defined
        assert not value.double().isnan().all()


def test_numpy_and_lists_are_taken():
    logits, labels = good[0].numpy(), good[1].numpy().astype(np.int32)
    assert float(metrics.ece(logits, labels)) == float(metrics.ece(*good))
    assert float(metrics.ece_from_confidence([0.5, 0.5], [1, 0])) == 0


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([1.5], [1], r"\[0, 1\]; got 1.5"),
        ([0.5], [2], "0 or 1"),
        ([0.5], [1, 0], r"shape \(1,\).*got \(2,\)"),
        ([], [], "N > 0"),
        ([float("nan")], [1], "confidence must be finite"),
        ([1], [1], "floating point"),
    ],
)
@pytest.mark.parametrize("metric", LOWER, ids=lambda m: m.__name__)
def test_wrong_confidence_is_named(metric, confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        metric(tensor(confidence), tensor(correct))


@pytest.mark.parametrize("metric", LOWER, ids=lambda m: m.__name__)
def test_confidences_of_every_kind(metric):
    confidence, correct = [0.5, 0.75, 0.875, 1.0], [True, False, True, True]
    expected = as_list(metric(tensor(confidence).double(), tensor(correct)))
    narrow = [tensor(confidence).to(dtype) for dtype in (torch.float16, torch.bfloat16)]
    for given in (*narrow, confidence, np.array(confidence)):
        for ours, value in zip(as_list(metric(given, correct)), expected, strict=True):
            assert torch.allclose(ours.double(), value.double(), atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("metric", [metrics.sece_from_confidence, metrics.dece_from_confidence])
def test_soft_hits_are_shares(metric):
    assert metric([0.5, 0.9], [0.25, 1.0]).isfinite()
    with pytest.raises(ValueError, match=r"correct must lie in \[0, 1\]; got 0.25 to 1.5"):
        metric([0.5, 0.9], [0.25, 1.5])


@pytest.mark.parametrize(
    "metric",
    [metrics.classwise_ece, metrics.auroc_ovr, metrics.auroc_ovr_binned, metrics.skce],
)
@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([[0.5, float("nan")], [0.5, 0.5]], r"rows of numbers in \[0, 1\].*row 0 sums to nan"),
        ([[0.5, 0.5], [1.5, -0.5]], r"rows of numbers in \[0, 1\].*row 1 holds -0.5"),
        ([0.5, 1.5], r"P\(class 1\) and lie in \[0, 1\]; got 0.5 to 1.5"),
    ],
)
def test_wrong_probabilities_are_named(metric, probs, message):
    with pytest.raises(ValueError, match=message):
        metric(probs=tensor(probs), labels=tensor([0, 1]))
    assert metric(probs=[[0.5, 0.5], [1.0, 0.0]], labels=[0, 1]).isfinite()


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        (metrics.ece, {"bins": 0}, "bins must be a positive integer; got 0"),
        (metrics.ece, {"edge": "middle"}, "edge must be one of 'right', 'left'"),
        (metrics.ece, {"norm": 3}, "norm must be one of"),
        (metrics.sece, {"bandwidth": 0}, "bandwidth must be positive"),
        (metrics.sece, {"form": "bins"}, "form must be one of"),
        (metrics.mmce, {"normalization": "mine"}, "normalization must be one of"),
        (metrics.mmce, {"bandwidth": 1e-4}, "bandwidth must be at least"),
        (metrics.skce, {"estimator": "best"}, "estimator must be one of"),
        (metrics.skce, {"bandwidth": 0}, "bandwidth must be positive"),
        (metrics.skce, {"bandwidth": -1.0}, "bandwidth must be positive"),
        (metrics.dece, {"bin_temperature": 0}, "bin_temperature must be positive"),
        (metrics.classwise_ece, {"bins": -1}, "bins must be a positive integer; got -1"),
        (metrics.ece, {"bins": 15.0}, "bins must be a positive integer; got 15.0"),
        (metrics.kde_ece, {"bandwidth": -1}, "bandwidth must be positive"),
        (metrics.classwise_ece, {"reduction": "max"}, "reduction must be one of"),
        (metrics.auroc_ovr_binned, {"thresholds": 1}, "thresholds must be at least 2"),
        (metrics.reliability, {"level": 95}, "level must lie between"),
    ],
)
def test_wrong_options_are_named(metric, options, message):
    with pytest.raises(ValueError, match=message):
        metric(*good, **options)


BINNED = ("ece", "mce", "rmsce", "adaptive_ece", "debiased_ece", "classwise_ece", "dece", "sece")


@pytest.mark.parametrize("name", BINNED)
def test_bins_may_be_numpys(name):
    metric = getattr(metrics, name)
    options = {"form": "grid"} if name == "sece" else {}
    value = metric(*good, bins=np.int64(7), **options)
    assert value == metric(*good, bins=7, **options)
    interval = metrics.confidence_interval(metric, *good, bins=np.int64(7), samples=5, **options)
    assert interval.value == value


@pytest.mark.parametrize("metric", [metrics.skce, metrics.kde_ece])
def test_one_row_is_too_few_for_pairs(metric):
    with pytest.raises(ValueError, match="at least two"):
        metric(good[0][:1], good[1][:1])
