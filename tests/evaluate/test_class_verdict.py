"""What is said of classes that are wrong: verdict, JSON, page, conditions."""

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn_classes import NAMES, OPPOSITE, drawn

from toosure.evaluate import ClassGap, ClassGaps, Estimate, evaluate
from toosure.evaluate.class_verdict import with_classes
from toosure.evaluate.conditions import judge, parse_condition
from toosure.evaluate.verdict import verdict
from toosure.page.evaluation import evaluation_page
from toosure.verdicts import GapVerdict


def made_up(*gaps, level=0.95):
    """Class gaps with intervals of two points to both sides."""
    classes = tuple(
        ClassGap(k, name, 1012, Estimate(gap, gap - 0.02, gap + 0.02), gap, 0.001)
        for k, (name, gap) in enumerate(gaps)
    )
    return ClassGaps(classes, Estimate(0.05, 0.04, 0.06), level)


@pytest.mark.parametrize(
    ("kind", "sentence", "headline", "lead"),
    [
        ("fine", "Well calibrated", "Right on average, but not for every class", "On average it"),
        ("uneven", "Right", "Right on average, but neither at every confidence nor", "On average"),
        (
            "unclear",
            "Cannot tell with 500 samples",
            "Not right for every class; on average, cannot tell with 500 samples",
            "Class by class it is not right",
        ),
        (
            "over",
            "Over-confident by 9.0 ± 1.0 points",
            "Over-confident by 9.0 ± 1.0 points on average, but classes differ",
            "Classes differ",
        ),
    ],
)
def test_no_headline_says_that_all_is_well(kind, sentence, headline, lead):
    gaps = made_up(("truck", -0.161), ("dog", 0.071), ("cat", 0.0))
    found, reasons = with_classes(GapVerdict(kind, sentence), 0.09, gaps)
    assert found.sentence.startswith(headline) and found.kind != "fine"
    assert reasons == (
        f"{reasons[0].split(':')[0]}: `truck` is under-confident by 16.1 points (n = 1,012, 95 % "
        "interval 14.1 to 18.1), `dog` over-confident by 7.1 (n = 1,012, 5.1 to 9.1). 2 of 3 "
        "predicted classes are off; the intervals hold for all 3 together.",
    )
    assert reasons[0].startswith(lead)


@pytest.mark.parametrize(
    ("gap", "of_class", "differs"),
    [(0.09, 0.2, False), (0.006, 0.2, True), (0.09, -0.07, True), (-0.09, -0.2, False)],
)
def test_a_headline_stays_where_classes_only_have_more_of_it(gap, of_class, differs):
    of_all = GapVerdict("over" if gap > 0 else "under", "Off by some points")
    found, reasons = with_classes(of_all, gap, made_up(("truck", of_class)))
    ending = " on average, but classes differ" if differs else ""
    assert found == of_all._replace(sentence=f"Off by some points{ending}")
    assert reasons[0].startswith("Classes differ: `truck` is ")


@pytest.mark.parametrize(
    "change",
    [
        {"gap": Estimate(0.025, 0.01, 0.04)},  # a small gap
        {"excess": 0.02},  # shared by all classes
        {"excess": -0.1},  # less wrong than rows of its confidences
        {"gap": Estimate(0.1, -0.01, 0.21)},  # may be 0
        {"adjusted_p": 0.06},  # chance
    ],
)
def test_what_is_not_worth_a_sentence(change):
    (fault,) = made_up(("truck", 0.1)).miscalibrated
    assert not fault._replace(**change).is_miscalibrated(0.95)
    gaps = ClassGaps((fault._replace(**change),), Estimate(0.0, 0.0, 0.0), 0.95)
    fine = GapVerdict("fine", "Well calibrated")
    assert with_classes(fine, 0.0, gaps) == (fine, ()) == with_classes(fine, 0.0, None)


def test_classes_without_names_and_many_of_them():
    gaps = made_up(*((str(k), 0.1 + 0.01 * k) for k in range(8)))
    _, (reason,) = with_classes(GapVerdict("fine", ""), 0.0, gaps)
    assert "class 7 is over-confident by 17.0 points" in reason and " and 3 more. 8 of 8" in reason


def test_verdict_json_and_page_name_the_class(monkeypatch):
    monkeypatch.setattr("toosure.evaluate.evaluation.MAX_PAIRS", 0)
    monkeypatch.setattr("toosure.evaluate.evaluation.MAX_SPLIT_NUMBERS", 0)
    predictions = replace(drawn(10_000, shift=OPPOSITE), names=("<a>", *NAMES[1:]))
    result = evaluate(predictions, samples=200)
    found = verdict(result)
    assert found.kind != "fine" and "class" in found.sentence
    assert any("`truck` is under-confident by " in reason for reason in found.reasons)

    values = json.loads(json.dumps(result.as_json(), allow_nan=False))
    of_truck = values["class_gaps"]["classes"][9]
    assert of_truck["class"] == "truck" == values["class_gaps"]["miscalibrated"][0]
    assert set(of_truck) == {"class", "n", "gap", "excess", "p_value"}
    assert of_truck["gap"][1] < of_truck["gap"][0] < of_truck["gap"][2] < -0.05
    assert values["intervals"]["class_gap"] == values["class_gaps"]["spread"][1:]

    html = evaluation_page(result)
    assert "<code>truck</code> is under-confident" in html and "gap, points" in html
    assert "&lt;a&gt;" in html and "<a>" not in html
    assert f"{100 * of_truck['gap'][0]:.1f}".replace("-", "−") in html


def test_a_condition_may_name_the_spread_of_classes():
    result = evaluate(drawn(10_000, shift=OPPOSITE), metrics=["class_gap"], samples=200)
    assert judge(parse_condition("class_gap > 0.03"), result).holds
    assert not judge(parse_condition("class_gap > 0.2"), result).holds
    calibrated = evaluate(drawn(10_000), metrics=["class_gap"], samples=200)
    assert not judge(parse_condition("class_gap > 0.01"), calibrated).holds


def test_a_binary_model_keeps_its_two_gaps():
    """Opposite errors of two classes are a shift of P(class 1), which its verdict states."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, 5000)
    truth = rng.random(5000) < p - 0.1
    of_class_one = verdict(evaluate(probs=p, labels=truth, samples=200, metrics=[]))
    assert of_class_one.sentence.startswith("P(class 1) is too high by 1")
    assert "classes" not in " ".join(of_class_one.reasons)

    two = evaluate(probs=p, labels=truth, samples=200, top_label=True, metrics=[])
    assert [each.gap.value > 0 for each in two.class_gaps.classes] == [False, True]
    assert verdict(two).sentence.startswith("Not right for every class; on average, cannot tell")
