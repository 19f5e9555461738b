"""Evaluations by what was given: binary, multi-label, tokens and pixels, groups."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss

from toosure import metrics
from toosure.binary import two_columns
from toosure.evaluate import evaluate
from toosure.evaluate.verdict import verdict
from toosure.page.calibration import calibration_page
from toosure.page.evaluation import evaluation_page
from toosure.page.multilabel import multilabel_page
from toosure.predictions import from_confidence, from_frame, from_logits
from toosure.recalibration import recalibrate

FEW = {"samples": 40}


@pytest.fixture(autouse=True)
def no_pairs(monkeypatch):
    """Leave out the metrics that take seconds on thousands of samples."""
    monkeypatch.setattr("toosure.evaluate.evaluation.MAX_PAIRS", 0)
    monkeypatch.setattr("toosure.evaluate.evaluation.MAX_SPLIT_NUMBERS", 0)


def drawn(n, scale=1.0, shift=0.0, seed=0):
    """Logits of class 1, and labels of logits that are larger by `scale`, less `shift`."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, generator=generator, dtype=torch.float64)
    return z, torch.rand(n, generator=generator) < torch.sigmoid(z * scale - shift)


def test_a_binary_model_is_judged_by_class_one():
    z, labels = drawn(500)
    p = z.sigmoid()
    result = evaluate(z, labels, **FEW)
    assert result.class_one and result.classes == 2
    for name in ("ece", "adaptive_ece", "smece", "mmce"):
        expected = getattr(metrics, f"{name}_from_confidence")(p, labels)
        assert result.metrics[name].value == pytest.approx(float(expected), abs=1e-9)
    assert result.metrics["nll"].value == pytest.approx(log_loss(labels, p), abs=1e-12)
    assert result.gap.value == pytest.approx(float(p.mean() - labels.double().mean()), abs=1e-6)
    assert result.frequency == pytest.approx(float(labels.double().mean()))

    found = result.as_json()
    json.dumps(found, allow_nan=False)
    assert found["of"] == "class 1" and found["dece"] is None
    assert found["binary_brier"] == pytest.approx(brier_score_loss(labels, p), abs=1e-12)

    for given in (
        {"probs": p},
        {"probs": p[:, None].numpy()},
        {"predictions": from_logits(z, labels)},
    ):
        given = given if "predictions" in given else given | {"labels": labels.numpy()}
        again = evaluate(**given, **FEW)
        assert again.class_one
        assert again.metrics["ece"].value == pytest.approx(result.metrics["ece"].value, abs=1e-9)


def test_top_label_numbers_are_those_of_two_columns():
    z, labels = drawn(300)
    one = evaluate(z, labels, top_label=True, **FEW).as_json()
    two = evaluate(two_columns(z), labels.long(), **FEW).as_json()
    assert one == two
    of_two_columns = evaluate(two_columns(z), labels.long(), top_label=False, **FEW).as_json()
    assert of_two_columns == evaluate(z, labels, **FEW).as_json()
    with pytest.raises(ValueError, match="of two classes; got 3"):
        evaluate(torch.randn(9, 3), torch.arange(9) % 3, top_label=False)


@pytest.mark.parametrize(
    ("scale", "shift", "sentence"),
    [
        (0.4, 0.0, "Over-confident by"),
        (3.0, 0.0, "Under-confident by"),
        (1.0, 0.8, "P(class 1) is too high by"),
        (1.0, -0.8, "P(class 1) is too low by"),
    ],
)
def test_the_verdict_names_what_is_wrong_with_a_binary_model(scale, shift, sentence):
    result = evaluate(*drawn(3000, scale, shift), samples=200)
    assert verdict(result).sentence.startswith(sentence)
    html = evaluation_page(result)
    assert "frequency of class 1, %" in html and "P(class 1) against the frequency" in html
    assert "of P(class 1) alone it is" in html and "predictions in memory" in html


def test_a_rare_class_given_too_much_is_not_called_under_confident():
    rng = np.random.default_rng(0)
    p = np.full(3000, 0.10)
    found = verdict(evaluate(probs=p, labels=rng.random(3000) < 0.05, samples=100))
    assert found.sentence.startswith("P(class 1) is too high by")


def test_tokens_are_resampled_by_sequences():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 12, 3, generator=generator, dtype=torch.float64)
    labels = logits.argmax(2)
    labels[20:] = torch.randint(3, (20, 12), generator=generator)  # half of the sequences are hard
    labels[:, 9:] = -100
    result = evaluate(logits, labels, samples=300)
    assert (result.n, result.groups, result.group_name) == (360, 40, "sequence")
    assert result.as_json()["groups"] == 40

    rows = evaluate(logits[:, :9].reshape(-1, 3), labels[:, :9].reshape(-1), samples=300)
    for name in ("ece", "nll", "accuracy", "aurc"):
        assert result.metrics[name].value == pytest.approx(rows.metrics[name].value, abs=1e-9)
    assert result.metrics["nll"].half > 1.2 * rows.metrics["nll"].half  # rows of one are alike
    assert result.gap.half > 1.2 * rows.gap.half
    assert "Intervals resample whole sequences, 40 of them" in evaluation_page(result)

    by_person = evaluate(logits, labels, groups=np.arange(40) // 4, samples=50)
    assert (by_person.groups, by_person.group_name) == (10, "group")


def test_pixels_and_their_images():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, 4, 4, generator=generator)
    labels = torch.randint(3, (5, 4, 4), generator=generator)
    labels[0] = 255
    result = evaluate(logits, labels, ignore_index=255, **FEW)
    assert (result.n, result.groups, result.group_name) == (64, 4, "image")
    mask = evaluate(torch.randn(5, 1, 4, 4, generator=generator), labels == 1, **FEW)
    assert mask.class_one and mask.groups == 5


def test_rows_with_groups_and_rows_to_ignore():
    z, labels = drawn(60)
    truth = labels.long()
    truth[:10] = -100
    groups = ["a", "b", "c"] * 20
    result = evaluate(z, truth, groups=groups, **FEW)
    assert (result.n, result.groups) == (50, 3)
    of_predictions = evaluate(from_logits(z[10:], labels[10:]), groups=groups[10:], **FEW)
    assert of_predictions.as_json() == result.as_json()
    assert (
        evaluate(from_confidence([0.5, 0.9, 0.8], [1, 0, 1]), groups=[0, 0, 1], **FEW).groups == 2
    )


def test_a_single_image_has_no_groups():
    logits = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert evaluate(logits, torch.zeros(1, 4, 4, dtype=torch.long), **FEW).groups is None


def test_independent_labels():
    rng = np.random.default_rng(0)
    probs = rng.uniform(0.05, 0.9, (800, 3))
    targets = rng.random((800, 3)) < probs
    probs[:, 1] = np.clip(probs[:, 1] + 0.1, 0, 1)
    result = evaluate(
        probs=probs, labels=targets, multilabel=True, names=("a", "<b>", "c"), samples=200
    )
    assert [row.name for row in result.worst] == ["<b>"]
    sentence = result.verdict.sentence
    assert sentence.startswith("1 of 3 labels is miscalibrated: <b> (too high by ")
    assert result.verdict.kind == "over"
    found = result.as_json()
    json.dumps(found, allow_nan=False)
    assert found["worst"] == ["<b>"] and len(found["per_label"]) == 3

    html = multilabel_page(result)
    assert "&lt;b&gt;" in html and "<b> (too" not in html and "frequency of label, %" in html
    assert "miscalibrated</span></h1><p>&lt;b&gt; (too" in html  # how many; which, below


@pytest.mark.parametrize(("n", "kind"), [(100, "unclear"), (20_000, "fine")])
def test_independent_labels_without_fault(n, kind):
    rng = np.random.default_rng(2)
    probs = rng.uniform(0.05, 0.9, (n, 2))
    result = evaluate(probs=probs, labels=rng.random((n, 2)) < probs, multilabel=True, samples=100)
    assert result.verdict.kind == kind and not result.worst


def test_what_is_wrong_is_named():
    several = torch.tensor([[1, 1, 0], [0, 1, 0]])
    with pytest.raises(ValueError, match="say multilabel=True"):
        evaluate(torch.randn(2, 3), several)
    with pytest.raises(ValueError, match=r"argmax\(1\) turns one-hot"):
        evaluate(torch.randn(3, 3), torch.eye(3))
    with pytest.raises(ValueError, match="labels are missing"):
        evaluate(torch.randn(3, 3))
    with pytest.raises(ValueError, match="give logits, or probabilities"):
        evaluate()
    with pytest.raises(ValueError, match="hold their labels"):
        evaluate(from_confidence([0.5], [1]), [1])
    with pytest.raises(ValueError, match="and no groups"):
        evaluate(probs=[[0.5, 0.1]], labels=[[1, 0]], multilabel=True, groups=[0])
    with pytest.raises(ValueError, match="every label is ignore_index"):
        evaluate(torch.randn(3), [-100] * 3)
    with pytest.raises(ValueError, match=r"probs=p; .*sigmoid"):
        evaluate([0.2, 0.7], [0, 1])


def test_a_binary_recalibration_shows_class_one():
    z, labels = drawn(400, scale=0.4)
    result = recalibrate(from_logits(z, labels), method="temperature")
    assert result.class_one
    before = metrics.ece_from_confidence(z.sigmoid(), labels)
    assert result.before.metrics["ece"].value == pytest.approx(float(before), abs=1e-9)
    assert result.after.metrics["ece"].value < result.before.metrics["ece"].value
    html = calibration_page(result)
    assert "Before: frequency of class 1 over P(class 1)" in html
    assert "ece and adaptive_ece are of P(class 1)" in html and "predictions in memory" in html


def test_rows_without_their_label():
    with pytest.raises(ValueError, match="501 rows of predictions, but 500 labels"):
        evaluate(torch.zeros(501, 3), torch.zeros(500, dtype=torch.int64))


@pytest.mark.parametrize("top_label", [False, True])
def test_probabilities_in_bfloat16_are_checked_once_by_their_own_digits(top_label):
    probs = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).softmax(1).bfloat16()
    assert (probs.double().sum(1) - 1).abs().max() > 0.001  # beyond the tolerance of float32
    result = evaluate(probs=probs, labels=torch.arange(50) % 2, top_label=top_label, **FEW)
    assert result.metrics["classwise_ece"].has_interval and result.metrics["ece"].value > 0


def test_labels_that_are_names():
    probs = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    for labels in (["cat", "dog", "dog"], np.array(["cat", "dog", "dog"])):
        result = evaluate(probs=probs, labels=labels, names=("cat", "dog"))
        assert result.metrics["accuracy"].value == pytest.approx(2 / 3)
        with pytest.raises(ValueError, match="labels are names: say names="):
            evaluate(probs=probs, labels=labels)
        with pytest.raises(ValueError, match="labels number the classes from 0"):
            metrics.ece(probs=probs, labels=labels)
    with pytest.raises(ValueError, match=r"names must be the 2 classes, .* got 3: a, b, c"):
        evaluate(probs=probs, labels=[0, 1, 1], names=("a", "b", "c"))
    with pytest.raises(ValueError, match="names must differ, where labels are names; got a, a"):
        evaluate(probs=probs, labels=["a", "a", "a"], names=("a", "a"))


def test_names_as_scikit_learn_has_them_and_a_label_that_is_missing():
    probs, names = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], np.array(["cat", "dog"])
    result = evaluate(probs=probs, labels=["cat", "dog", "dog"], names=names)
    assert [row.name for row in result.per_class] == ["cat", "dog"]
    with pytest.raises(ValueError, match=r"1 row has no label, row 0 .*'None'"):
        evaluate(probs=probs, labels=[None, "dog", "dog"], names=names)


def test_groups_of_a_frame_are_a_column_and_none_is_missing():
    frame = {"y": ["a", "b"] * 6, "p_a": [0.9, 0.4] * 6, "p_b": [0.1, 0.6] * 6}
    patients = [f"P{i // 3}" for i in range(12)]
    named = evaluate(frame | {"patient": patients}, label="y", groups="patient")
    given = evaluate(frame, label="y", groups=np.array(patients))
    assert named.groups == 4 and named.gap == given.gap
    with pytest.raises(ValueError, match="no column or array 'patients'"):
        evaluate(frame | {"patient": patients}, label="y", groups="patients")
    with pytest.raises(ValueError, match="names a column of a data frame only"):
        evaluate([[0.9, 0.1]] * 2, [0, 1], groups="patient")
    for missing in (np.array(["P0", None] * 6, dtype=object), np.array([1.0, np.nan] * 6)):
        with pytest.raises(ValueError, match="name no group in row 1"):
            evaluate(frame, label="y", groups=missing)


def test_the_missing_group_of_pandas_has_no_truth_value():
    pandas = pytest.importorskip("pandas")
    groups = pandas.Series(["P0", None, "P1"] * 4, dtype="string")
    with pytest.raises(ValueError, match="name no group in row 1"):
        evaluate(probs=[0.2, 0.7, 0.6] * 4, labels=[0, 1, 0] * 4, groups=groups)


def test_a_probability_is_rounded_to_just_above_1():
    probs = np.array([0.2, 0.7, 1 + 2e-7, -2e-7])
    assert evaluate(probs=probs, labels=[0, 1, 1, 0]).metrics["nll"].value == pytest.approx(
        -np.log([0.8, 0.7, 1, 1]).mean()
    )
    with pytest.raises(ValueError, match="lie in"):
        evaluate(probs=probs + 1e-3, labels=[0, 1, 1, 0])

    table = {"label": np.array([0, 1, 1, 0]), "prob": probs}
    assert from_frame(table).kind == "probs" and from_frame(table).labels.tolist() == [0, 1, 1, 0]
    both = {"label": table["label"], "p_0": 1 - probs, "p_1": probs}
    with pytest.raises(ValueError, match="row 2 holds -2e-07"):  # they were read as logits
        from_frame(both)


def test_one_metric_may_be_named_without_a_list():
    logits, labels = [[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], [0, 1, 1]
    assert set(evaluate(logits, labels, metrics="nll").metrics) == {"nll", "accuracy", "ece"}
    with pytest.raises(ValueError, match="no metric 'nlll'"):
        evaluate(logits, labels, metrics="nlll")
