"""A refusal names the true cause, and its remedy, followed literally, gives the right number."""

import pytest
import torch
from torch import tensor

from toosure import metrics

generator = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(50, 3, generator=generator, dtype=torch.float64)
LABELS = torch.multinomial(LOGITS.softmax(1), 1, generator=generator).squeeze(1)
SEVERAL = (LOGITS.sigmoid() > 0.5).long()


def refusal(logits, labels):
    """Return what `ece` says of a pair."""
    with pytest.raises(ValueError) as error:
        metrics.ece(logits, labels)
    return str(error.value)


def test_several_labels_per_row_are_not_called_one_hot():
    several = SEVERAL.clone()
    several[7] = tensor([1, 0, 1])
    message = refusal(LOGITS, several)
    assert "argmax" not in message and "several labels per row" in message

    # The sentence, followed: one class at a time, of logits and of probabilities.
    z, p, k = LOGITS, LOGITS.sigmoid(), 1
    of_logits = metrics.ece(z[:, k], several[:, k])
    of_probs = metrics.ece(probs=p[:, k], labels=several[:, k])
    confidence = torch.maximum(p[:, k], 1 - p[:, k])
    expected = metrics.ece_from_confidence(confidence, (p[:, k] > 0.5) == several[:, k])
    assert of_logits == pytest.approx(expected) and of_probs == pytest.approx(expected)


def test_one_hot_rows_are_and_soft_ones_are_not():
    one_hot = torch.eye(3)[LABELS]
    assert "argmax(1) turns one-hot rows" in refusal(LOGITS, one_hot)
    assert metrics.ece(LOGITS, one_hot.argmax(1)) == metrics.ece(LOGITS, LABELS)
    soft = refusal(LOGITS, LOGITS.softmax(1))
    assert "not one-hot" in soft and "argmax" not in soft


def test_a_column_of_labels_is_taken_as_one():
    assert "labels[:, 0]" in refusal(LOGITS, LABELS[:, None])
    assert metrics.ece(LOGITS, LABELS[:, None][:, 0]) == metrics.ece(LOGITS, LABELS)


def test_targets_of_a_regression_are_not_rounded():
    targets = LABELS.double()
    assert ".long()" in refusal(LOGITS, targets)  # whole numbers in a float
    targets[4] = 1.37
    message = refusal(LOGITS, targets)
    assert ".long()" not in message and "1.37 in row 4" in message
    targets[4] = torch.nan
    assert "nan in row 4" in refusal(LOGITS, targets)


def test_booleans_are_numbers_of_two_classes_only():
    hits = LABELS == 0
    assert ".long()" in refusal(LOGITS[:, :2], hits)
    message = refusal(LOGITS, hits)
    assert ".long()" not in message and "which of 3 classes" in message


def test_one_column_in_the_unit_interval_is_refused_with_both_remedies():
    z = LOGITS[:, 0].abs() / 10  # all within [0, 1]
    truth = LABELS == 0
    message = refusal(z, truth)
    assert "probs=p" in message and "probs=torch.sigmoid(z)" in message

    # The sentence, followed: as probabilities, and as logits.
    confidence = torch.maximum(z, 1 - z)
    expected = metrics.ece_from_confidence(confidence, (z > 0.5) == truth)
    assert metrics.ece(probs=z, labels=truth) == pytest.approx(expected)
    expected = metrics.ece(torch.stack([0 * z, z], 1), truth.long())
    assert metrics.ece(probs=torch.sigmoid(z), labels=truth) == pytest.approx(expected)


def test_the_tolerance_of_sums_is_stated_and_holds_what_it_says():
    rows = tensor([[0.5, 0.499], [0.7, 0.301]], dtype=torch.float64)  # .999 and 1.001
    assert metrics.accuracy(probs=rows, labels=tensor([0, 0])) == 1
    with pytest.raises(
        ValueError, match=r"to within 0.001; row 0 sums to 0.998: these look like rounded"
    ):
        metrics.accuracy(probs=rows - tensor([0.001, 0]), labels=tensor([0, 0]))


def test_log_probabilities_and_percentages_are_named():
    with pytest.raises(ValueError, match="these are log-probabilities, which are logits"):
        metrics.ece(probs=LOGITS.log_softmax(1), labels=LABELS)
    with pytest.raises(ValueError, match="these are percentages; divide them by 100"):
        metrics.ece(probs=100 * LOGITS.softmax(1), labels=LABELS)
    rounded = tensor([[0.335, 0.335, 0.332], [0.33, 0.33, 0.33]])
    with pytest.raises(ValueError, match="rounded probabilities; write more digits"):
        metrics.ece(probs=rounded, labels=tensor([0, 1]))
    with pytest.raises(ValueError, match=r"sums to 0.9$"):  # further than rounding takes it
        metrics.ece(probs=tensor([[0.3, 0.3, 0.3]]), labels=tensor([0]))


def test_labels_of_more_classes_than_outputs_say_how_many_columns_they_need():
    """As two cumulative logits of an ordinal head give them for three classes."""
    assert "the outputs have 2 columns, and a label 2 needs 3" in refusal(LOGITS[:, :2], LABELS)
    assert "columns" not in refusal(LOGITS, LABELS - 1)
    assert refusal(LOGITS, LABELS + 1).endswith("got 1 to 3: labels start at 1; subtract 1")
