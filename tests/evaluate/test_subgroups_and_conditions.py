"""Subgroups with a correction for many, and conditions judged by a whole interval."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from toosure.evaluate import Estimate, evaluate
from toosure.evaluate.conditions import judge, parse_condition
from toosure.evaluate.subgroups import members_of, single_level, subgroups
from toosure.predictions import from_confidence, from_logits


def rows(n=900, seed=0):
    """Three sites: at "c" the model is 20 points too sure."""
    rng = np.random.default_rng(seed)
    site = np.array(list("abc"))[np.arange(n) % 3]
    confidence = rng.uniform(0.6, 1.0, n)
    correct = rng.random(n) < confidence - 0.2 * (site == "c")
    return replace(from_confidence(confidence, correct), extras={"site": site, "age": np.arange(n)})


def test_the_group_that_is_off_is_found():
    result = subgroups(rows(), "site")
    assert [group.name for group in result.groups] == ["a", "b", "c"]
    assert [group.kind for group in result.groups][2] == "over"
    assert "1 of 3 groups by 'site' are off: c (over-confident)" in result.sentence
    assert "Bonferroni: each is taken at 98.33 %" in result.sentence
    assert result.as_json()["correction"] == "bonferroni"


def test_intervals_are_wider_for_more_groups_and_equal_those_of_the_level():
    assert single_level(0.95, 10) == pytest.approx(0.995)
    predictions = rows()
    whole = replace(predictions, extras={"one": np.zeros(900, dtype=int)})
    alone = subgroups(whole, "one").groups[0]
    known = evaluate(predictions, metrics=["ece"])
    assert (alone.gap, alone.ece) == (known.gap, known.metrics["ece"])
    many = subgroups(rows(), "site").groups[0].gap
    own = evaluate(
        from_confidence(*columns_of_first_site()), level=single_level(0.95, 3), metrics=[]
    )
    assert many.value == pytest.approx(own.gap.value)
    assert many.half == pytest.approx(own.gap.half, rel=0.1)


def binary_rows(n=900, seed=0):
    """Three sites of a binary model: at "b" P(class 1) is too high, at "c" it is too extreme."""
    rng = np.random.default_rng(seed)
    site = np.array(list("abc"))[np.arange(n) % 3]
    logit = rng.normal(0, 1.5, n)
    true = rng.random(n) < 1 / (1 + np.exp(-(logit - 1.5 * (site == "b"))))
    given = np.where(site == "c", 4 * logit, logit)
    return replace(from_logits(given, true.astype(int)), extras={"site": site})


def test_groups_of_a_binary_model_are_judged_by_the_probability_of_class_one():
    predictions = binary_rows()
    result = subgroups(predictions, "site")
    a, b, c = result.groups
    assert a.kind not in ("over", "under")
    assert b.sentence.startswith("P(class 1) is too high by")
    assert c.sentence.startswith("Over-confident by") and c.top_gap.low > 0

    rows = predictions.extras["site"] == "b"
    p = torch.sigmoid(predictions.logits[:, 1] - predictions.logits[:, 0])[torch.from_numpy(rows)]
    assert b.confidence == pytest.approx(float(p.mean()))
    assert b.frequency == pytest.approx(float(predictions.labels[rows].double().mean()))
    assert result.class_one and "of P(class 1) and of the predicted class" in result.sentence
    assert "b (P(class 1) too high)" in result.sentence and "c (over-confident)" in result.sentence
    assert "each is taken at 99.17 %" in result.sentence  # 1 - 0.05 / 6
    assert result.as_json()["of"] == "class 1" and "top_gap" in result.as_json()["groups"][0]

    of_prediction = subgroups(predictions, "site", top_label=True)
    assert not of_prediction.class_one and of_prediction.groups[1].top_gap is None
    assert of_prediction.groups[2].kind == "over"


def columns_of_first_site():
    predictions = rows()
    first = predictions.extras["site"] == "a"
    return predictions.confidence[first], predictions.correct[first]


@pytest.mark.slow
def test_false_alarms_are_kept_at_the_level():
    """Of calibrated rows in ten groups, at most about 5 % of the sets may name any group."""
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(0.6, 1.0, 800)
        predictions = from_confidence(confidence, rng.random(800) < confidence)
        predictions = replace(predictions, extras={"g": np.arange(800) % 10})
        result = subgroups(predictions, "g", seed=seed)
        alarms += any(group.kind in ("over", "under") for group in result.groups)
    assert alarms <= 4


def test_numbers_are_cut_into_quarters():
    members = members_of({"age": np.arange(100.0)}, "age")
    assert [len(each) for each in members.values()] == [25, 25, 25, 25]
    assert sorted(np.concatenate(list(members.values())).tolist()) == list(range(100))


def test_rows_without_a_number_are_a_group_beside_the_quarters():
    """As text from a table that misses a value, and as NaN: an age made 71 groups."""
    numbers = np.append(np.arange(40.0), [np.nan, np.nan])
    text = np.array([*map(str, range(40)), "", ""])
    for values in (numbers, text):
        members = members_of({"age": values}, "age")
        assert list(members) == [
            "0 to 9.75",
            "9.75 to 19.5",
            "19.5 to 29.25",
            "29.25 to 39",
            "(empty)",
        ]
        assert [len(each) for each in members.values()] == [10, 10, 10, 10, 2]
    sites = np.array([f"0{k}" for k in range(30)])
    assert len(members_of({"site": sites}, "site")) == 30
    assert list(members_of({"site": np.append(sites[:3], "")}, "site")) == [
        "(empty)",
        "00",
        "01",
        "02",
    ]


def test_every_row_is_in_a_group_where_names_are_alike():
    groups = members_of({"site": np.array(["", "nan", "b", "nan"])}, "site")
    assert {name: rows.tolist() for name, rows in groups.items()} == {
        "(empty)": [0],
        "b": [2],
        "nan": [1, 3],
    }
    groups = members_of({"site": np.array([1000001.0, 1000002.0, np.nan])}, "site")
    assert list(groups) == ["1000001.0", "1000002.0", "(empty)"]


def test_columns_that_make_no_groups():
    extras = {"name": np.array([f"n{i}" for i in range(300)]), "x": np.full(30, np.nan)}
    with pytest.raises(ValueError, match="no column 'site' to group by; there is name, x"):
        members_of(extras, "site")
    with pytest.raises(ValueError, match="300 values; at most 200 groups"):
        members_of(extras, "name")
    with pytest.raises(ValueError, match="holds infinity"):
        members_of({"x": np.append(np.arange(30.0), np.inf)}, "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ece", "'ece' is not a condition: write NAME > NUMBER .* names are gap, ece"),
        ("ece > x", "is not a condition"),
        ("ecce > 0.1", "no number 'ecce'; did you mean 'ece'"),
        ("ECE > 0.1", "no number 'ECE'; did you mean 'ece'"),
        ("calibration > 0.1", "no number 'calibration'; "),
        ("auroc < 0.8", "no number 'auroc'; there are auroc_misclass, auroc_ovr, auroc_ovr_binned"),
        ("nope > 0.1", "no number 'nope'; there are gap, ece, "),
        ("ece > 5", "'ece > 5' can never hold: ece lies between 0 and 1; 5 points are 0.05"),
        ("accuracy < 0", "can never hold: accuracy lies between 0 and 1"),
        ("accuracy < 90", "'accuracy < 90' always holds: .* 0 and 1; 90 % are 0.9"),
        ("ece > -0.1", "always holds: ece lies between 0 and 1"),
        ("gap > 1", "can never hold: gap lies between -1 and 1"),
        ("ece > 1.2.3", "'1.2.3' is not a number"),
    ],
)
def test_conditions_that_are_none(text, words):
    with pytest.raises(ValueError, match=words):
        parse_condition(text)


def test_a_condition_holds_only_with_the_whole_interval():
    result = evaluate(rows(), metrics=["ece", "accuracy"])
    known = replace(
        result,
        metrics={"ece": Estimate(0.05, 0.03, 0.07), "mce": Estimate(0.2), "nll": Estimate(np.nan)},
        gap=Estimate(-0.04, -0.06, -0.02),
        left_out={"brier": "needs the probability of every class"},
    )
    for text, holds, word in (
        ("ece > 0.02", True, "wholly above 0.02"),
        ("ece > 0.04", False, "is not certain"),
        ("ece > 0.06", False, "passes: not ece > 0.06"),
        ("ece < 0.08", True, "wholly below 0.08"),
        ("ece<0.06", False, "is not certain"),
        ("gap < -0.01", True, "-0.06 to -0.02"),
        ("mce >= 1e-1", True, "without an interval"),
    ):
        judgement = judge(parse_condition(text), known)
        assert judgement.holds == holds and word in judgement.sentence, text
    with pytest.raises(ValueError, match=r"brier is not known .needs the probability"):
        judge(parse_condition("brier > 1"), known)
    with pytest.raises(ValueError, match="nll is undefined"):
        judge(parse_condition("nll > 1"), known)


@pytest.mark.parametrize("groups", [None, 3])
def test_no_condition_holds_of_very_few_rows_or_groups(groups):
    n = 1 if groups is None else 30
    given = from_confidence([0.57] * n, [True] * n)
    if groups is not None:
        given = replace(given, groups=torch.arange(n) % groups)
    result = evaluate(given)
    low, high = result.metrics["ece"].ends
    assert low < result.metrics["ece"].value < high
    for text in ("ece > 0.05", "aurc < 0.5", "sece > 0.01", "accuracy > 0.5"):
        if parse_condition(text).name in result.metrics:
            judgement = judge(parse_condition(text), result)
            noun = "1 row is" if groups is None else "3 groups are"
            assert not judgement.holds and f"{noun} too few to decide on" in judgement.sentence


def test_gates_do_not_fail_by_noise_alone():
    """Calibrated models of 5 to 20 rows: `ece > 0.05` failed in a fifth of them."""
    failed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(0.5, 1.0, rng.integers(5, 21))
        given = from_confidence(confidence, rng.random(len(confidence)) < confidence)
        result = evaluate(given, metrics=["smece"], samples=200)
        conditions = (parse_condition(text) for text in ("ece > 0.05", "smece > 0.05"))
        failed += any(judge(each, result).holds for each in conditions)
    assert failed <= 4


def test_only_the_metrics_asked_for():
    result = evaluate(rows(), metrics=["smece"])
    assert set(result.metrics) == {"smece", "accuracy", "ece"} and result.per_class == ()
    everything = evaluate(rows())
    assert all(everything.metrics[key] == result.metrics[key] for key in result.metrics)
    with pytest.raises(ValueError, match="no metric 'ecce'; there are ece"):
        evaluate(rows(), metrics=["ecce"])


def test_a_data_frame_is_evaluated():
    frame = {"y": ["a", "b", "b", "a"], "p_a": [0.9, 0.2, 0.4, 0.6], "p_b": [0.1, 0.8, 0.6, 0.4]}
    assert evaluate(frame, label="y").metrics["accuracy"].value == 1
    scores = {"truth": [1, 0, 0, 1], "s": [0.9, 0.2, 0.6, 0.4]}
    assert evaluate(scores, label="truth", columns=["s"]).metrics["accuracy"].value == 0.5
