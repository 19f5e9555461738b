"""Independent labels: each as its own binary problem, pooled, and the worst ones named."""

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss

from toosure import metrics
from toosure.metrics import multilabel_calibration
from toosure.metrics.label_faults import judge_labels


def drawn(n=400, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.uniform(0.05, 0.9, (n, labels))
    return probs, (rng.random((n, labels)) < probs).astype(int)


def test_each_label_is_a_binary_problem():
    probs, targets = drawn()
    result = multilabel_calibration(probs=probs, targets=targets, samples=100)
    logits = np.log(probs / (1 - probs))
    of_logits = multilabel_calibration(logits, targets.astype(bool), samples=100)
    for k, (label, other) in enumerate(zip(result.labels, of_logits.labels, strict=True)):
        p, y = probs[:, k], targets[:, k]
        expected = {
            "ece": metrics.ece_from_confidence(p, y),
            "smece": metrics.smece_from_confidence(p, y),
            "brier": brier_score_loss(y, p),
            "nll": log_loss(y, p),
            "gap": p.mean() - y.mean(),
        }
        for name, value in expected.items():
            interval = getattr(label, name)
            assert float(interval.value) == pytest.approx(float(value), abs=1e-12)
            assert float(getattr(other, name).value) == pytest.approx(float(value), abs=1e-9)
            assert interval.low <= interval.value <= interval.high
        assert label.name == str(k) and label.samples == 400


def test_all_labels_pooled():
    probs, targets = drawn()
    pooled = multilabel_calibration(probs=probs, targets=targets, samples=200).pooled
    p, y = probs.ravel(), targets.ravel()
    assert float(pooled["ece"].value) == pytest.approx(float(metrics.ece_from_confidence(p, y)))
    assert float(pooled["brier"].value) == pytest.approx(brier_score_loss(y, p))
    assert float(pooled["nll"].value) == pytest.approx(log_loss(y, p))
    assert float(pooled["gap"].value) == pytest.approx((p - y).mean())

    # Labels that are copies of each other tell no more than one of them.
    same = multilabel_calibration(
        probs=np.repeat(probs[:, :1], 4, 1), targets=np.repeat(targets[:, :1], 4, 1), samples=500
    ).pooled["gap"]
    errors = (probs - targets)[:, 0]
    width = 2 * 1.96 * errors.std() / 20
    assert float(same.high - same.low) == pytest.approx(width, rel=0.15)


def test_the_worst_labels_are_named():
    probs, targets = drawn(n=1500, labels=8)
    probs[:, 2] = np.clip(probs[:, 2] + 0.08, 0, 1)
    probs[:, 5] = np.clip(probs[:, 5] - 0.15, 0, 1)
    probs[:, 6] = np.where(probs[:, 6] > 0.475, probs[:, 6] ** 0.5, probs[:, 6] ** 2)  # extreme
    names = tuple("abcdefgh")
    result = multilabel_calibration(probs=probs, targets=targets, names=names, samples=300)
    faults = {label.name: label.fault for label in result.labels}
    assert faults == dict.fromkeys(names, "") | {"c": "too high", "f": "too low", "g": "uneven"}
    assert {label.name for label in result.worst} == {"c", "f", "g"}
    errors = [float(label.ece.value) for label in result.worst]
    assert errors == sorted(errors, reverse=True)


def test_few_calibrated_labels_are_called_faulty_however_many_there_are():
    called = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        pairs = []
        for _ in range(12):
            p = rng.beta(1, 4, 150)
            pairs.append((torch.from_numpy(p), torch.from_numpy(rng.random(150) < p)))
        tests = judge_labels(pairs, 15, "right", seed, 200)
        called += any(test.adjusted_p <= 0.05 for test in tests)
    assert called <= 8  # 5 % of 60 is 3; of 12 labels without correction it would be 28


def test_ignored_entries_are_left_out():
    probs, targets = drawn()
    holes = targets.copy()
    holes[:100, 1] = -100
    result = multilabel_calibration(probs=probs, targets=holes, samples=50)
    assert result.labels[1].samples == 300
    expected = metrics.ece_from_confidence(probs[100:, 1], targets[100:, 1])
    assert float(result.labels[1].ece.value) == pytest.approx(float(expected))
    holes[:, 1] = -100
    with pytest.raises(ValueError, match="every target of label 1 is ignore_index"):
        multilabel_calibration(probs=probs, targets=holes)


def test_a_label_that_is_never_true_keeps_an_honest_gap():
    probs = np.full((50, 2), 0.01)
    probs[:, 1] = 0.5
    targets = np.stack([np.zeros(50), np.arange(50) % 2], 1)
    gap = multilabel_calibration(probs=probs, targets=targets, samples=50).labels[0].gap
    assert float(gap.low) < -0.05 and float(gap.high) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": [[0.1, 0.9], [0.2, 0.4]], "targets": [[0, 1], [1, 0]]}, "probs=p; .*sigmoid"),
        ({"probs": [[0.1, 1.9], [0.2, 0.4]], "targets": [[0, 1], [1, 0]]}, "0.1 to 1.9"),
        ({"probs": [[0.1, 0.9], [0.2, 0.4]], "targets": [[0, 1], [2, 0]]}, "2 in row 1, label 0"),
        (
            {"probs": [[0.1, 0.9], [0.2, 0.4]], "targets": [[0, 1], [1, float("nan")]]},
            "nan in row 1, label 1: write -100",
        ),
        (
            {"probs": [[0.1, 0.9], [0.2, 0.4]], "targets": [[0, 1], [-1, 0]]},
            "if -1 marks targets that are not known, say ignore_index=-1",
        ),
        ({"probs": [[0.1, 0.9], [0.2, 0.4]], "targets": [0, 1]}, r"got \(2,\) and \(2, 2\)"),
        ({"probs": [[0.1, 0.9]], "targets": [[0, 1]]}, "two rows at least"),
        ({"probs": [[0.1, 0.9], [0.2, 0.4]]}, "targets are missing"),
        ({"targets": [[0, 1]]}, "give logits, or probabilities"),
        (
            {"probs": [[0.1, 0.9], [0.2, 0.4]], "targets": [[0, 1], [1, 0]], "names": ("a",)},
            "got 1 names for 2 labels",
        ),
    ],
)
def test_what_is_wrong_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        multilabel_calibration(**arguments)
