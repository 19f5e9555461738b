"""Intervals over groups against plain resampling of groups, and how often they hold the truth."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from toosure import metrics
from toosure.metrics import confidence_interval, confidence_interval_from_confidence
from toosure.metrics.group_draws import group_numbers, resampled_sums
from toosure.quantiles import student_quantile

generator = torch.Generator().manual_seed(0)
GROUPS = torch.arange(40).repeat_interleave(torch.randint(1, 9, (40,), generator=generator))
N = len(GROUPS)
SHIFT = torch.randn(40, generator=generator, dtype=torch.float64)[GROUPS]
LOGITS = 2 * torch.randn(N, 3, generator=generator, dtype=torch.float64)
TRUE_PROBS = (LOGITS * (0.5 + SHIFT.abs())[:, None]).softmax(1)
LABELS = torch.multinomial(TRUE_PROBS, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)


def by_hand(metric, samples=600):
    """Resample groups row by row, and return the spread of the metric."""
    rng = np.random.default_rng(1)
    members = [torch.nonzero(g == GROUPS).squeeze(1) for g in range(40)]
    picks = [torch.cat([members[g] for g in rng.integers(40, size=40)]) for _ in range(samples)]
    return torch.stack([metric(LOGITS[i], LABELS[i]) for i in picks]).std()


@pytest.mark.parametrize("name", ["nll", "accuracy", "aurc", "debiased_ece"])
def test_width_is_that_of_groups_resampled_by_hand(name):
    metric = getattr(metrics, name)
    value, low, high = confidence_interval(metric, LOGITS, LABELS, groups=GROUPS)
    assert float(value) == pytest.approx(float(metric(LOGITS, LABELS)), abs=1e-12)
    width = float(high - low)
    if name == "debiased_ece":  # cut off at 0, and as wide as that of the ECE
        assert 0 < width < 6 * float(by_hand(metric))
    else:
        assert width == pytest.approx(2 * 1.96 * float(by_hand(metric)), rel=0.2)


def test_probabilities_and_logits_agree():
    probs = LOGITS.softmax(1)
    for metric in (metrics.ece, metrics.nll, metrics.auroc_misclass):
        first = confidence_interval(metric, LOGITS, LABELS, groups=GROUPS)
        second = confidence_interval(metric, labels=LABELS, groups=GROUPS, probs=probs)
        assert [float(v) for v in first] == pytest.approx([float(v) for v in second], abs=1e-9)


def test_groups_of_one_row_are_independent_rows():
    rows = torch.arange(N)
    for metric in (metrics.ece, metrics.smece, metrics.classwise_ece, metrics.mmce, metrics.nll):
        grouped = confidence_interval(metric, LOGITS, LABELS, groups=rows)
        plain = confidence_interval(metric, LOGITS, LABELS)
        assert float(grouped.value) == pytest.approx(float(plain.value))
        assert float(grouped.high) == pytest.approx(float(plain.high), abs=0.02)
        assert float(grouped.low) == pytest.approx(float(plain.low), abs=0.02)


def clustered_rows(seed, groups=40, size=25, spread=0.25):
    """Confidences of groups that are right more or less often than claimed, 0 on average."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.35, 0.65, (groups, size))
    shift = rng.uniform(-spread, spread, (groups, 1))
    correct = rng.random((groups, size)) < confidence + shift
    index = np.repeat(np.arange(groups), size)
    return torch.from_numpy(confidence.ravel()), torch.from_numpy(correct.ravel()), index


@pytest.mark.parametrize("name", ["ece", "smece", "classwise_ece"])
def test_intervals_over_groups_hold_an_error_of_zero_where_those_over_rows_do_not(name):
    metric = getattr(metrics, name)
    held = {"groups": 0, "rows": 0}
    for seed in range(30):
        confidence, correct, index = clustered_rows(seed)
        probs = torch.stack([1 - confidence, confidence], 1)
        if name != "classwise_ece":  # of a pair, of which class 1 need not be the predicted one
            metric = getattr(metrics, f"{name}_from_confidence")
            pair = (confidence, correct)
            grouped = confidence_interval_from_confidence(metric, *pair, groups=index, samples=100)
            rows = confidence_interval_from_confidence(metric, *pair, samples=100)
        else:
            given = {"probs": probs, "labels": correct.long(), "samples": 100}
            grouped = confidence_interval(metric, groups=index, **given)
            rows = confidence_interval(metric, **given)
        assert grouped.low <= rows.low and rows.high <= grouped.high
        held["groups"] += float(grouped.low) <= 1e-9
        held["rows"] += float(rows.low) <= 1e-9
    assert held["groups"] >= 26 and held["rows"] < held["groups"]  # 95 % of 30 less two errors


def test_an_error_that_all_groups_share_is_seen():
    confidence, correct, index = clustered_rows(0)
    for name in ("ece", "smece", "mmce"):
        metric = getattr(metrics, f"{name}_from_confidence")
        value, low, high = confidence_interval_from_confidence(
            metric, confidence + 0.3, correct, groups=index, samples=100
        )
        assert 0.1 < low < value < high


def test_students_quantiles_are_those_of_scipy():
    shares, freedoms = (0.75, 0.95, 0.975, 0.9999), (1, 2, 3, 4, 9, 30, 199, 200, 5000)
    for share, freedom in itertools.product(shares, freedoms):
        wanted = student.ppf(share, freedom)
        assert student_quantile(share, freedom) == pytest.approx(wanted, rel=1e-6)


def test_sums_are_drawn_group_by_group():
    per_group = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    sums = resampled_sums(per_group, seed=0, samples=4000)
    assert sums.mean(0).tolist() == pytest.approx([1.0, 1.0], abs=0.06)
    assert (sums.sum(1) <= 3).all()
    assert torch.equal(sums, resampled_sums(per_group, seed=0, samples=4000))


def test_groups_may_be_names_and_are_checked():
    assert group_numbers(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"shape \(3,\), one per row; got \(2,\)"):
        group_numbers([0, 1], 3)
    with pytest.raises(ValueError, match="all rows are of one group"):
        group_numbers([5, 5], 2)
    with pytest.raises(ValueError, match=r"over groups there is only method=.auto.; got 'basic'"):
        confidence_interval(metrics.ece, LOGITS, LABELS, method="basic", groups=GROUPS)


def test_shares_stay_between_0_and_1():
    sure = 20 * torch.nn.functional.one_hot(LABELS, 3).double()
    sure[GROUPS == 0] = -sure[GROUPS == 0]
    for metric in (metrics.accuracy, metrics.aurc):
        by_logits = confidence_interval(metric, sure, LABELS, groups=GROUPS)
        by_probs = confidence_interval(metric, probs=sure.softmax(1), labels=LABELS, groups=GROUPS)
        for interval in (by_logits, by_probs):
            assert 0 <= interval.low <= interval.value <= interval.high <= 1


def test_a_metric_of_logits_alone_takes_the_logarithm_of_probabilities():
    def mean_margin(logits, labels):
        return logits.gather(1, labels[:, None]).mean()

    probs = LOGITS.softmax(1)
    found = confidence_interval(mean_margin, probs=probs, labels=LABELS, groups=GROUPS, samples=20)
    assert float(found.value) == pytest.approx(float(mean_margin(probs.log(), LABELS)))
    with pytest.raises(ValueError, match="samples"):
        confidence_interval(metrics.nll, LOGITS, LABELS, groups=GROUPS, samples=0)
