"""Gaps of predicted classes: by hand, against shuffled rows, and what they leave out."""

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.metrics.predicted_classes import ROWS_PER_CUT, class_table, strata


def rows(n=2000, classes=5, shift=(0.0,), low=0.3, seed=0):
    """Confidences, hits drawn from them less the shift of their class, and predicted classes."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(low, 1, n)
    predicted = generator.integers(classes, size=n)
    chance = np.clip(confidence - np.resize(shift, classes)[predicted], 0, 1)
    correct = generator.random(n) < chance
    return torch.tensor(confidence), torch.tensor(correct), torch.tensor(predicted)


def test_gaps_by_hand():
    confidence, correct, predicted = rows()
    gaps = metrics.class_gaps(confidence, correct, predicted)
    for k in range(5):
        own = predicted == k
        by_hand = confidence[own].mean() - correct[own].double().mean()
        assert float(gaps[k]) == pytest.approx(float(by_hand), abs=1e-12)


def test_classes_that_were_not_predicted_are_left_out():
    table = class_table(torch.tensor([0.9, 0.8]), torch.tensor([True, False]), torch.tensor([7, 2]))
    assert table.classes.tolist() == [2, 7]
    assert table.gaps().tolist() == pytest.approx([0.8, -0.1])


@pytest.mark.parametrize(
    ("predicted", "words"),
    [([0, 1, 2], r"shape \(2,\), the class of each row; got \(3,\)"), ([0.2, 0.8], "argmax")],
)
def test_what_is_no_class_is_named(predicted, words):
    with pytest.raises(ValueError, match=words):
        metrics.class_gaps([0.9, 0.8], [1, 0], predicted)


def test_expected_misses_and_their_variance_are_those_of_shuffled_rows():
    confidence, correct, predicted = rows(300, shift=(0.1, -0.1))
    table = class_table(confidence, correct, predicted)
    strata_rows = [(table.stratum == s).nonzero().squeeze(1) for s in range(len(table.counts))]
    generator = torch.Generator().manual_seed(0)
    wrong = (~correct).double()

    shuffled = []
    for _ in range(4000):
        for own in strata_rows:
            wrong[own] = wrong[own[torch.randperm(len(own), generator=generator)]]
        shuffled.append(torch.bincount(predicted, wrong).numpy())
    shuffled = np.array(shuffled)
    spread = np.sqrt(table.variance().numpy())
    assert shuffled.mean(0) == pytest.approx(table.expected().numpy(), abs=5 * spread.max() / 63)
    assert shuffled.std(0) == pytest.approx(spread, rel=0.06)


def test_the_parts_of_all_rows_cancel():
    table = class_table(*rows(shift=(0.2, 0.0, -0.1)))
    assert float(table.excess() @ table.rows()) == pytest.approx(0, abs=1e-9)


def test_strata_hold_equal_confidences_together_in_any_order():
    confidence = torch.tensor([0.5] * 200 + [0.9] * 300 + [1.0] * 500)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    stratum = strata(confidence)
    assert strata(confidence[order]).tolist() == stratum[order].tolist()
    assert stratum.unique().tolist() == [0, 1, 2]
    assert strata(torch.rand(2 * ROWS_PER_CUT - 1)).max() == 0


def test_strata_tell_the_few_unsure_rows_apart():
    confidence = torch.cat([torch.linspace(0.4, 0.9, 100), torch.full((9900,), 0.9999)])
    assert strata(confidence)[:100].max() >= 15


def with_logits(confidence, predicted, classes=5):
    """Logits of two classes that have these confidences; the others are out of the question."""
    logits = torch.full((len(confidence), classes), -60.0, dtype=torch.float64)
    logits.scatter_(1, ((predicted + 1) % classes)[:, None], 0.0)
    return logits.scatter_(1, predicted[:, None], torch.logit(confidence)[:, None])


def test_the_spread_is_of_what_classes_do_not_share():
    confidence, correct, predicted = rows(200_000, shift=(0.1, -0.1, 0.0, 0.05, -0.05), low=0.6)
    labels = torch.where(correct, predicted, (predicted + 1) % 5)
    spread = float(metrics.class_gap(with_logits(confidence, predicted), labels))
    assert 0.055 < spread < 0.072  # of the shifts .071; some are cut off at 1

    shared = rows(200_000, shift=(0.15,), low=0.6)
    labels = torch.where(shared[1], shared[2], (shared[2] + 1) % 5)
    logits = with_logits(shared[0], shared[2])
    assert float(metrics.class_gap(logits, labels)) < 0.004
    assert float(metrics.ece(logits, labels)) == pytest.approx(0.15, abs=0.01)


def test_chance_is_removed_from_small_samples():
    """Raw gaps of 100 classes of 10 rows differ by 12 points; the spread is 0 as often as not."""
    spreads, raw = [], []
    for seed in range(40):
        confidence, correct, predicted = rows(1000, 100, low=0.6, seed=seed)
        labels = torch.where(correct, predicted, (predicted + 1) % 100)
        spreads.append(float(metrics.class_gap(with_logits(confidence, predicted, 100), labels)))
        raw.append(float(metrics.class_gaps(confidence, correct, predicted).std()))
    assert np.mean(raw) > 0.1
    assert np.median(spreads) < 0.02 and min(spreads) == 0
