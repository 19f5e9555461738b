"""Two files on the same rows: changes are plain differences, intervals those of resampling."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.evaluate import evaluate
from toosure.evaluate.paired import compare, resampled_weights
from toosure.evaluate.paired_scores import paired_scores
from toosure.page.two_models import comparison_page
from toosure.predictions import from_confidence, from_logits, from_probs


def two_models(n=600, seed=0):
    """An over-confident model and a calibrated one, of the same logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    noise = 0.3 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    first = replace(from_logits(3 * logits, labels), source="sure")
    return first, replace(from_logits(logits + noise, labels), source="calm")


def test_values_are_those_of_the_metrics():
    first, second = two_models()
    result = compare(first, second, samples=20)
    assert [d.key for d in result.differences] == ["accuracy", "nll", "ece", "smece", "aurc"]
    for d in result.differences:
        metric = getattr(metrics, d.key)
        own, other = (float(metric(p.logits, p.labels)) for p in (first, second))
        assert (d.first, d.second) == pytest.approx((own, other), abs=1e-12)
        assert d.change.value == pytest.approx(other - own, abs=1e-12)
        assert d.change.low <= d.change.value <= d.change.high


def test_a_replica_is_the_metric_of_the_rows_drawn():
    """Weights that repeat rows give what the metrics say of repeated rows, smECE at its width."""
    first, second = two_models(n=300)
    scores, _ = paired_scores(first, second, 15)
    weights = next(resampled_weights(first, 3, 1))
    rows = torch.from_numpy(np.repeat(np.arange(300), weights.astype(int)))
    for score in scores:
        if score.key == "smece":
            pairs = ((first, score.first), (second, score.second))
            own, other = (
                float(metrics.smece_from_confidence(p.confidence[rows], p.correct[rows], width))
                for p, width in pairs
            )
        else:
            metric = getattr(metrics, score.key)
            own, other = (float(metric(p.logits[rows], p.labels[rows])) for p in (first, second))
        tolerance = 2e-3 if score.key == "smece" else 1e-9  # rows lie at the nodes of a grid
        assert score.change(weights) == pytest.approx(other - own, abs=tolerance), score.key


def test_the_verdict_in_words():
    first, second = two_models(3000)
    result = compare(first, second, samples=200)
    assert result.kind in ("better", "mixed")
    assert result.sentence.startswith("calm is better in NLL, ECE and smECE")
    turned = compare(second, first, samples=200)
    assert "worse in NLL, ECE and smECE" in turned.sentence
    same = compare(first, replace(first, source="again"), samples=50)
    assert same.kind == "open"
    assert same.sentence == "3,000 rows show no difference between sure and again"
    assert result.as_json()["differences"]["ece"]["high"] < 0


def test_long_names_are_the_first_and_the_second():
    first, second = two_models(300)
    long = replace(second, source="digits-mlp-" * 5)
    result = compare(first, long, samples=50)
    assert result.names == ("the first", "the second")
    assert long.source not in result.sentence and "the second is" in result.sentence
    assert result.as_json()["second"] == long.source
    html = comparison_page(result)
    heading = html[html.index("<h1>") : html.index("</h1>")]
    assert "The second is" in heading and long.source not in heading
    assert f"first: sure · second: {long.source}" in html
    assert compare(first, second, samples=50).names == ("sure", "calm")


def test_intervals_hold_the_true_change():
    """Equal confidences, of which one model claims 0.2 more: the change of ECE is 0.2 - 0."""
    held = 0
    for seed in range(20):
        correct = torch.tensor(np.random.default_rng(seed).random(200) < 0.7)
        calm = from_confidence(torch.full((200,), 0.7).double(), correct)
        sure = from_confidence(torch.full((200,), 0.9).double(), correct)
        change = next(
            d.change for d in compare(calm, sure, samples=100).differences if d.key == "ece"
        )
        held += change.low <= 0.2 <= change.high
    assert held >= 17


def test_binary_models_are_judged_by_class_one():
    labels = [1, 0, 1, 0, 1, 1]
    pair = [
        from_probs(np.array([0.9, 0.2, 0.7, 0.4, 0.6, 0.8]) ** power, labels) for power in (1, 2)
    ]
    change = next(d for d in compare(*pair, samples=5).differences if d.key == "ece")
    known = [evaluate(each, metrics=["ece"]).metrics["ece"].value for each in pair]
    assert (change.first, change.second) == pytest.approx(tuple(known))


def test_groups_are_resampled_whole():
    first, _ = two_models(60)
    grouped = replace(first, groups=torch.arange(60) // 6)
    weights = next(resampled_weights(grouped, 0, 1)).reshape(10, 6)
    assert (weights == weights[:, :1]).all() and weights[:, 0].sum() == 10


def test_groups_that_one_side_has_count_whichever_it_is():
    logits = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(60) // 10) % 2
    plain, other = from_logits(logits, labels), from_logits(logits.abs(), labels)
    grouped = replace(other, groups=torch.arange(60) // 10)
    results = [compare(plain, grouped, samples=50), compare(grouped, plain, samples=50)]
    assert [result.groups for result in results] == [6, 6]
    one, two = ({d.key: d.change for d in result.differences} for result in results)
    assert one["nll"].low == pytest.approx(-two["nll"].high)


def test_other_rows_are_refused():
    first, second = two_models(50)
    shifted = from_logits(second.logits, second.labels.roll(1))
    with pytest.raises(ValueError, match=r"not of the same rows: .* labels differ, first in row"):
        compare(first, shifted)
    with pytest.raises(ValueError, match="have 50 and 40 rows"):
        compare(first, from_logits(second.logits[:40], second.labels[:40]))
    ids = {"id": np.arange(50)}
    turned = replace(second, extras={"id": np.arange(50)[::-1]})
    with pytest.raises(ValueError, match="row 0 has id 0 and 49; sort both by id"):
        compare(replace(first, extras=ids), turned)
    as_read = {"id": np.arange(50.0)}  # a .csv holds numbers of any kind
    with pytest.raises(ValueError, match="row 0 has id 0 and 49; sort both by id"):
        compare(replace(first, extras=as_read), turned)
    assert compare(replace(first, extras=ids), replace(second, extras=ids), samples=5).checked == (
        "same rows by 'id'"
    )
    named = replace(first, names=tuple("abcd")), replace(second, names=tuple("abdc"))
    with pytest.raises(ValueError, match="name or order their classes differently"):
        compare(*named)
    with pytest.raises(ValueError, match="name or order their classes differently"):
        compare(*(replace(side, extras=ids) for side in named))
    with pytest.raises(ValueError, match="labels differ"):  # though the ids agree
        compare(replace(first, extras=ids), replace(shifted, extras=ids))
    with pytest.raises(ValueError, match="level"):
        compare(first, second, level=2)
    with pytest.raises(ValueError, match="bins"):
        compare(first, second, bins=0)


def test_confidences_alone_and_infinite_losses():
    pair = [from_confidence([0.9, 0.6, 0.7], [True, False, True]) for _ in range(2)]
    result = compare(*pair, samples=5)
    assert "nll" in result.left_out and "cannot be checked" in result.checked
    endless = from_probs([[1.0, 0.0], [0.5, 0.5]], [1, 0])
    finite = from_probs([[0.5, 0.5], [0.5, 0.5]], [1, 0])
    result = compare(endless, finite, samples=5)
    assert result.as_json()["differences"]["nll"]["first"] is None
    assert "1 label has probability 0 in the first" in result.left_out
    assert result.sentence.endswith("NLL is infinite and was not compared")
    assert compare(finite, finite, samples=5).left_out == ""
