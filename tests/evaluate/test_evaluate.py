"""Evaluation: values as published, intervals as plain resampling gives them, each verdict."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest
from sklearn.metrics import roc_auc_score

from toosure.evaluate import Estimate, evaluate
from toosure.evaluate.class_one import judge_gaps
from toosure.evaluate.estimates import calibrated_ece, confidence_gap, hit_rate
from toosure.evaluate.result import metric_keys
from toosure.evaluate.verdict import verdict
from toosure.metrics import binary_entropy, brier_split, ece_from_confidence, nll_split
from toosure.predictions import from_confidence, from_logits, from_probs, read_predictions
from toosure.quantities import QUANTITIES
from toosure.verdicts import judge_gap

BOOTSTRAP = {"level": 0.95, "seed": 0, "samples": 1000}
NAMES = metric_keys()


@pytest.fixture
def no_pairs(monkeypatch):
    """Leave out the metrics that take seconds on thousands of samples."""
    monkeypatch.setattr("toosure.evaluate.evaluation.MAX_PAIRS", 0)


@pytest.fixture
def only_the_verdict(no_pairs, monkeypatch):
    """Take intervals of nothing but what a verdict rests on."""
    for key, quantity in QUANTITIES.items():
        if key != "ece":
            monkeypatch.setitem(QUANTITIES, key, replace(quantity, resampled=""))


def drawn(n, shift=0.0, low=0.5, seed=0):
    """Confidences, and hits drawn from them less `shift`."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(low, 1, n)
    return confidence, generator.random(n) < np.clip(confidence - shift, 0, 1)


def some_logits(n=300, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


def test_published_figures(real_data, no_pairs):
    file = real_data / "logits" / "logits_resnet110_c10.npz"
    result = evaluate(read_predictions(file, split="test"), samples=200)
    published = {"ece": 0.047503519, "mce": 0.295799, "nll": 0.358274, "brier": 0.11019}
    for name, value in published.items():
        assert result.metrics[name].value == pytest.approx(value, abs=2e-6)
    assert result.metrics["accuracy"].value == pytest.approx(1 - 0.0644)
    assert verdict(result).sentence.startswith("Over-confident by 4.8 ± 0.")
    half = (result.gap.high - result.gap.low) / 2
    assert half == pytest.approx(0.0044, rel=0.1)  # by normal theory


def test_the_gap_and_its_interval_match_resampled_rows():
    confidence, correct = drawn(3000, shift=0.05)
    gap = confidence_gap(from_confidence(confidence, correct), **BOOTSTRAP)
    rows = confidence - correct
    assert gap.value == pytest.approx(rows.mean(), abs=1e-12)
    picks = np.random.default_rng(1).integers(0, 3000, (2000, 3000))
    low, high = np.quantile(rows[picks].mean(1), [0.025, 0.975])
    # A quantile of 1000 replicas has an error of about sd / 12: four of those.
    assert gap.low == pytest.approx(low, abs=rows.std() / 3000**0.5 / 3)
    assert gap.high == pytest.approx(high, abs=rows.std() / 3000**0.5 / 3)


@pytest.mark.parametrize(("n", "edge"), [(50, "right"), (2000, "left")])
def test_the_ece_of_chance_matches_labels_drawn_row_by_row(n, edge):
    confidence, correct = (torch.as_tensor(each) for each in drawn(n))
    chance = calibrated_ece(from_confidence(confidence, correct), 10, edge, **BOOTSTRAP)
    generator = torch.Generator().manual_seed(1)
    draws = torch.rand(1000, n, generator=generator, dtype=torch.float64) < confidence
    errors = torch.stack([ece_from_confidence(confidence, hits, 10, edge) for hits in draws])
    spread = float(errors.std())
    assert chance.value == pytest.approx(float(errors.mean()), abs=5 * spread * (2 / 1000) ** 0.5)
    assert chance.low == pytest.approx(float(errors.quantile(0.025)), abs=spread / 3)
    assert chance.high == pytest.approx(float(errors.quantile(0.975)), abs=spread / 3)


def test_accuracy_has_wilsons_interval():
    assert hit_rate(torch.tensor([True] * 8 + [False] * 2), 0.95) == pytest.approx(
        (0.8, 0.4901625, 0.9433178), abs=1e-7
    )


@pytest.mark.parametrize(
    ("kind", "pair", "words"),
    [
        ("over", drawn(4000, 0.1), "Over-confident by 1[01].. ± 1.. points"),
        ("under", drawn(4000, -0.1, low=0.3), "Under-confident by .* ± .* points"),
        ("fine", drawn(40_000), "Well calibrated"),
        ("unclear", drawn(60, seed=1), "Cannot tell with 60 samples"),
    ],
)
def test_verdicts(kind, pair, words, only_the_verdict):
    found = verdict(evaluate(from_confidence(*pair), samples=200))
    assert found.kind == kind
    assert re.match(words, found.sentence), found.sentence


def test_right_on_average_but_uneven(only_the_verdict):
    confidence = np.repeat([0.6, 0.9], 2000)
    correct = np.concatenate([np.arange(2000) < 1600, np.arange(2000) < 1400])  # 0.8 and 0.7
    found = verdict(evaluate(from_confidence(confidence, correct)))
    assert found.kind == "uneven"
    assert "would show" in found.reasons[1] and "does not show" not in found.reasons[1]


def test_too_few_samples_say_how_many_would_do(only_the_verdict):
    result = evaluate(from_confidence(*drawn(100)))
    found, half = verdict(result), result.gap.half
    needed = int(found.reasons[-1].split()[1].replace(",", ""))
    assert needed == pytest.approx(100 * (half / 0.01) ** 2, rel=0.1)


def test_a_calibrated_model_is_seldom_accused(only_the_verdict):
    accused = [
        verdict(evaluate(from_confidence(*drawn(500, seed=seed)), samples=200)).kind
        for seed in range(40)
    ]
    wrong = sum(kind not in ("fine", "unclear") for kind in accused)
    assert wrong <= 8  # of 40, 5 % by the gap and 2.5 % by the ECE: 3 expected, more once in 500


@pytest.mark.parametrize(("n", "low"), [(100, 0.98), (300, 0.99), (1000, 0.997), (10, 0.9)])
def test_a_sure_and_calibrated_model_is_seldom_accused(n, low):
    """Often no row is wrong, and resampling alone would call that an accuracy of exactly 1."""
    gaps = [
        confidence_gap(from_confidence(*drawn(n, low=low, seed=seed)), 0.95, seed, 200)
        for seed in range(200)
    ]
    accused = sum(gap.low > 0 or gap.high < 0 for gap in gaps)
    assert accused <= 19  # of 200 at 5 %; more would come once in 200
    assert all(gap.half > 0 for gap in gaps)


def test_a_few_unsure_rows_among_sure_ones_accuse_nobody():
    generator, accused = np.random.default_rng(0), 0
    for seed in range(200):
        confidence = np.where(generator.random(50) < 0.05, 0.5, 0.9995)
        correct = generator.random(50) < confidence
        gap = confidence_gap(from_confidence(confidence, correct), 0.95, seed, 200)
        accused += gap.low > 0 or gap.high < 0
    assert accused <= 19


@pytest.mark.parametrize(("n", "hits"), [(10, 10), (10, 0), (40, 39), (1, 1)])
def test_the_gap_of_equal_confidences_is_exact(n, hits):
    """Clopper and Pearson's interval of the accuracy, or what chance would give if wider."""
    correct = np.arange(n) < hits
    gap = confidence_gap(from_confidence(np.full(n, 0.5), correct), 0.95, 0, 20_000)
    exact = (
        0.5 - np.array(binomtest(hits, n).proportion_ci().high),
        0.5 - np.array(binomtest(hits, n).proportion_ci().low),
    )
    chance = binom(n, 0.5).ppf([0.025, 0.975]) / n - hits / n  # widened to these
    assert gap.low == pytest.approx(min(exact[0], chance[0]), abs=0.01)
    assert gap.high == pytest.approx(max(exact[1], chance[1]), abs=0.01)


@pytest.mark.parametrize(
    ("confidence", "sentence"),
    [([0.95] * 10, "Cannot tell with 10 samples"), ([0.6], "Cannot tell with 1 sample")],
)
def test_rows_that_are_all_right_prove_little(confidence, sentence, only_the_verdict):
    found = verdict(evaluate(from_confidence(confidence, [True] * len(confidence))))
    assert found.sentence == sentence


def test_groups_that_do_not_vary_prove_no_more_than_their_rows(only_the_verdict):
    given = replace(from_confidence([0.57, 0.57], [True, True]), groups=torch.arange(2))
    result = evaluate(given)
    assert verdict(result).kind == "unclear" and result.gap.ends[1] > 0
    low, high = result.metrics["accuracy"].ends
    assert low <= hit_rate(given.correct, 0.95).ends[0] < 0.4 and high == 1


def test_a_lopsided_interval_is_printed_as_it_is():
    lopsided = Estimate(0.007, 0.0002, 0.037)
    assert judge_gap(*lopsided, 150).sentence == "Over-confident by 0.7 points (0.02 to 3.7)"
    mirrored = judge_gap(-0.007, -0.037, -0.0002, 150)
    assert mirrored == ("under", "Under-confident by 0.7 points (0.02 to 3.7)")
    of_class = judge_gaps(lopsided, Estimate(0.0, -0.01, 0.01), 150)
    assert of_class.sentence == "P(class 1) is too high by 0.7 points (0.02 to 3.7)"
    assert judge_gap(0.02, 0.001, 0.041, 150).sentence.endswith("by 2.0 points (0.1 to 4.1)")
    assert judge_gap(0.05, 0.04, 0.061, 150).sentence == "Over-confident by 5.0 ± 1.0 points"


def test_kinds_agree():
    logits, labels = some_logits()
    probs = logits.softmax(1)
    top = probs.max(1)
    first = evaluate(from_logits(logits, labels), samples=40)
    second = evaluate(from_probs(probs, labels), samples=40)
    third = evaluate(from_confidence(top.values, top.indices == labels), samples=40)
    for other in (second, third):
        for name, found in other.metrics.items():
            expected = first.metrics[name]
            assert found.value == pytest.approx(expected.value, rel=1e-9, abs=1e-12), name
            if found.low is not None and expected.low is not None:
                assert found[1:] == pytest.approx(expected[1:], rel=1e-9, abs=1e-12), name
    assert set(third.left_out) == set(NAMES) - set(third.metrics)
    assert {"nll", "brier", "classwise_ece", "skce", "dece"} <= set(third.left_out)
    assert third.classes is None and third.per_class == ()


def test_probabilities_are_binned_as_they_came():
    probs = torch.tensor([[0.6, 0.4]] * 3 + [[0.7, 0.3]] * 3, dtype=torch.float32)
    result = evaluate(from_probs(probs, torch.tensor([0, 0, 1, 0, 0, 0])), bins=5)
    assert result.table.counts.tolist() == [0, 0, 3, 3, 0]
    expected = 0.5 * abs(0.6 - 2 / 3) + 0.5 * abs(0.7 - 1)
    assert result.metrics["ece"].value == pytest.approx(expected, abs=1e-7)


def test_class_probabilities_on_bin_edges_are_binned_as_they_came():
    """Tenths, whose bin (a, b] is known by counting: softmax(log p) moves some over the edge."""
    generator = np.random.default_rng(0)
    tenths = generator.multinomial(10, [0.5, 0.3, 0.2], 2000)
    labels = (generator.random((2000, 1)) > (tenths / 10).cumsum(1)).sum(1).clip(0, 2)
    place = (tenths - 1).clip(0)  # 0 and 0.1 share the first bin
    gaps = tenths / 10 - np.eye(3)[labels]
    sums = [[gaps[place[:, k] == b, k].sum() for b in range(10)] for k in range(3)]
    by_hand = np.abs(sums).sum(1) / 2000
    for dtype in (np.float32, np.float64):
        result = evaluate(from_probs((tenths / 10).astype(dtype), labels), bins=10, samples=10)
        assert [row.ece for row in result.per_class] == pytest.approx(by_hand, abs=1e-7)
        assert result.metrics["classwise_ece"].value == pytest.approx(by_hand.mean(), abs=1e-7)
        ranks = [roc_auc_score(labels == k, tenths[:, k]) for k in range(3)]
        assert result.metrics["auroc_ovr"].value == pytest.approx(np.mean(ranks), abs=1e-12)
        coarse = (tenths * 14) // 10
        ranks = [roc_auc_score(labels == k, coarse[:, k]) for k in range(3)]
        assert result.metrics["auroc_ovr_binned"].value == pytest.approx(np.mean(ranks), abs=1e-12)


def test_zero_probabilities_make_no_nan():
    probs = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    result = evaluate(from_probs(probs, np.array([0, 0, 1, 2])))
    assert result.metrics["nll"].value == np.inf
    assert result.infinite == "NLL is infinite: 1 label has probability 0."
    values = {name: each.value for name, each in result.metrics.items()}
    assert not [name for name, value in values.items() if np.isnan(value)]
    assert result.metrics["nll_calibration"].value == 0
    assert result.as_json()["nll"] is None and "nll" not in result.as_json()["intervals"]
    json.dumps(result.as_json(), allow_nan=False)


@pytest.mark.parametrize("n", [1, 2])
def test_hardly_any_samples(n):
    result = evaluate(from_logits([[1.0, -1.0], [0.0, 2.0]][:n], [0, 1][:n]))
    assert result.as_json()["auroc_misclass"] is None  # nothing was wrong
    json.dumps(result.as_json(), allow_nan=False)
    assert verdict(result).sentence


def test_json_has_each_metric_and_the_settings():
    result = evaluate(from_logits(*some_logits()), bins=10, edge="left", level=0.9, samples=40)
    found = result.as_json()
    settings = ["n", "classes", "bins", "edge", "class_gaps", "intervals"]
    assert list(found) == [*NAMES, *settings]
    assert (found["n"], found["classes"], found["bins"], found["edge"]) == (300, 4, 10, "left")
    assert found["intervals"].pop("level") == 0.9
    for name, (low, high) in found["intervals"].items():
        assert low <= found[name] <= high, name


def test_scores_are_split():
    logits, labels = some_logits()
    found = evaluate(from_logits(3 * logits, labels), samples=10).as_json()
    for name, split_of in (("nll", nll_split), ("brier", brier_split)):
        split = split_of(3 * logits, labels)
        assert found[f"{name}_calibration"] == float(split.calibration) > 0.1
        assert found[f"{name}_refinement"] == float(split.refinement)
        total = found[f"{name}_calibration"] + found[f"{name}_refinement"]
        assert total == pytest.approx(found[name], abs=1e-12)
    assert found["binary_entropy"] == float(binary_entropy(3 * logits, labels))
    low, high = found["intervals"]["binary_entropy"]
    assert low < found["binary_entropy"] < high


def test_a_split_of_very_many_numbers_is_left_out(monkeypatch):
    monkeypatch.setattr("toosure.evaluate.evaluation.MAX_SPLIT_NUMBERS", 1000)
    found = evaluate(from_logits(*some_logits()), samples=10)
    assert "too much for 1,200 numbers" in found.left_out["brier_refinement"]
    assert found.as_json()["nll_calibration"] is None


def test_level_and_seed(only_the_verdict):
    predictions = from_confidence(*drawn(500))
    narrow, wide = (evaluate(predictions, level=level) for level in (0.5, 0.99))
    assert narrow.gap.half < wide.gap.half
    assert narrow.metrics["ece"].half < wide.metrics["ece"].half
    first, again, other = (evaluate(predictions, seed=seed).as_json() for seed in (0, 0, 1))
    assert first == again and first != other
    with pytest.raises(ValueError, match=r"between 0 and 1, such as 0\.95; got 95"):
        evaluate(predictions, level=95)


def test_a_row_a_class():
    logits, _ = some_logits(6, 3)
    labels = torch.tensor([0, 0, 1, 1, 1, 0])  # class 2 has no samples
    rows = evaluate(from_logits(logits, labels)).per_class
    assert [row.samples for row in rows] == [3, 3, 0]
    assert rows[2].recall is None and rows[2].frequency == 0
    assert [row.probability for row in rows] == pytest.approx(logits.softmax(1).mean(0).tolist())
    hits = (logits.argmax(1) == labels)[labels == 0]
    assert rows[0].recall == pytest.approx(float(hits.double().mean()))


def test_pairs_of_many_samples_are_left_out():
    result = evaluate(from_confidence(*drawn(20_000)), samples=10)
    assert "all pairs" in result.left_out["sece"]
    assert result.as_json()["sece"] is None
