"""The change of ECE on the same rows: its value, its interval, and how often that holds 0."""

from dataclasses import replace

import pytest
import torch

from toosure import metrics
from toosure.evaluate import estimates
from toosure.evaluate.estimates import ece_change
from toosure.evaluate.paired import compare, ece_change_over_groups
from toosure.predictions import from_logits

OPTIONS = {"bins": 15, "level": 0.95, "seed": 0, "samples": 400}


def drawn(n, seed, temperature=1.0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
    return logits, labels.squeeze(1)


def test_the_value_is_the_difference_and_blocks_do_not_matter(monkeypatch):
    logits, labels = drawn(500, 0, 2.0)
    before, after = from_logits(logits, labels), from_logits(logits / 2, labels)
    change = ece_change(before, after, **OPTIONS)
    expected = metrics.ece(logits / 2, labels) - metrics.ece(logits, labels)
    assert change.value == pytest.approx(float(expected), abs=1e-12)
    assert change.low < change.value < change.high < 0

    monkeypatch.setattr(estimates, "MAX_DRAWN", 1)
    assert ece_change(before, after, **OPTIONS) == change
    back = ece_change(after, before, **OPTIONS)
    assert back.value == pytest.approx(-change.value) and back.low > 0


def test_the_interval_is_that_of_resampled_rows():
    logits, labels = drawn(800, 1, 1.3)
    change = ece_change(from_logits(logits, labels), from_logits(logits / 1.3, labels), **OPTIONS)
    generator = torch.Generator().manual_seed(0)
    resampled = []
    for _ in range(400):
        rows = torch.randint(800, (800,), generator=generator)
        pair = logits[rows], labels[rows]
        resampled.append(metrics.ece(pair[0] / 1.3, pair[1]) - metrics.ece(*pair))
    low, high = torch.stack(resampled).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    assert change.low == pytest.approx(min(low, 2 * change.value - high), abs=0.006)
    assert change.high == pytest.approx(max(high, 2 * change.value - low), abs=0.006)


@pytest.mark.parametrize("binary", [False, True])
def test_over_groups_it_is_that_of_a_comparison(binary):
    """`compare` draws rows by their groups, one replica after another."""
    logits, labels = drawn(600, 2, 1.5)
    logits, labels = (logits[:, 0], labels == 0) if binary else (logits, labels)
    groups = torch.arange(600) // 20
    before, after = (replace(from_logits(z, labels), groups=groups) for z in (logits, logits / 1.5))
    change = ece_change_over_groups(before, after, **OPTIONS)
    compared = compare(before, after, samples=OPTIONS["samples"]).differences
    expected = next(each.change for each in compared if each.key == "ece")
    assert tuple(change) == pytest.approx(tuple(expected), rel=1e-9)


def test_a_change_of_calibrated_predictions_is_seldom_called_more_than_chance():
    """Two temperatures on either side of the true one: the ECE is the same but for chance."""
    called = 0
    for seed in range(60):
        logits, labels = drawn(400, seed)
        change = ece_change(
            from_logits(logits / 1.02, labels), from_logits(logits * 1.02, labels), **OPTIONS
        )
        called += change.low > 0 or change.high < 0
    assert called <= 6


def test_one_row_has_no_interval():
    logits, labels = drawn(1, 0)
    change = ece_change(from_logits(logits, labels), from_logits(logits / 2, labels), **OPTIONS)
    assert change.low is None and change.high is None
