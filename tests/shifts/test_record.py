"""What a run keeps of its shifts: means, mCE by hand, the way to JSON and back, damage."""

import json
import math

import pytest

from toosure.shifts.record import FILE, Ood, ShiftRecord


def scores(accuracy, ece=0.1):
    return {"accuracy": accuracy, "nll": 1 - accuracy, "ece": ece, "smece": ece / 2}


def record_of(*accuracies, **fields):
    """Fog at severities 1 and 2, then snow; accuracies in this order."""
    names = [("fog", 1), ("fog", 2), ("snow", 1), ("snow", 2)]
    cells = {name: scores(each) for name, each in zip(names, accuracies, strict=True)}
    return ShiftRecord(images=10, available=20, clean=scores(0.9), cells=cells, **fields)


def test_means_are_over_cells_severities_and_corruptions():
    record = record_of(0.8, 0.6, 0.5, 0.1)
    assert record.mean("accuracy") == pytest.approx(0.5)
    assert record.mean("accuracy", severity=1) == pytest.approx(0.65)
    assert record.mean("accuracy", corruption="snow") == pytest.approx(0.3)
    assert record.at("accuracy", 0) == 0.9 and record.at("accuracy", 2) == pytest.approx(0.35)
    assert record.mean_error == pytest.approx(0.5)
    assert record.corruptions == ["fog", "snow"] and record.severities == [1, 2]
    assert record.covers(["fog"], [1, 2]) and not record.covers(["fog"], [3])


def test_the_mean_corruption_error_is_a_mean_of_ratios():
    record = record_of(0.8, 0.6, 0.5, 0.1)  # errors .6 under fog, 1.4 under snow
    baseline = record_of(0.9, 0.7, 0.8, 0.4)  # .4 and .8
    assert record.mean_corruption_error(baseline) == pytest.approx((0.6 / 0.4 + 1.4 / 0.8) / 2)
    assert record.mean_corruption_error(record) == 1

    # Two seeds of the baseline: their errors are averaged, .5 and 1.1.
    both = record.mean_corruption_error(baseline, record)
    assert both == pytest.approx((0.6 / 0.5 + 1.4 / 1.1) / 2)
    assert math.isnan(record.mean_corruption_error(record_of(1.0, 1.0, 0.5, 0.5)))
    other = ShiftRecord(10, 20, scores(0.9), {("fog", 1): scores(0.8)})
    with pytest.raises(ValueError, match="different corruptions"):
        record.mean_corruption_error(other)


def test_a_record_survives_json():
    ood = {"noise": Ood(7, {"energy": 0.9}, {"energy": 0.3}, "a note")}
    record = record_of(0.8, 0.6, 0.5, 0.1, ood=ood, seed=3, step=40, seconds=1.5, device="cpu")
    text = json.dumps(record.as_json(), allow_nan=False)
    assert ShiftRecord.read(json.loads(text)) == record and FILE == "shifts.json"
    assert json.loads(text)["mean"]["accuracy"] == pytest.approx(0.5)


def test_what_is_not_finite_is_null_in_the_file():
    record = record_of(0.8, 0.6, 0.5, 0.1)
    record.cells["fog", 1]["nll"] = math.nan
    values = json.loads(json.dumps(record.as_json(), allow_nan=False))
    assert values["corruptions"]["fog"]["1"]["nll"] is None and values["mean"]["nll"] is None
    again = ShiftRecord.read(values)
    assert math.isnan(again.cells["fog", 1]["nll"]) and again.mean("ece") == pytest.approx(0.1)


@pytest.mark.parametrize(
    "damage",
    [
        {"corruptions": {}},
        {"corruptions": []},
        {"corruptions": {"fog": {"x": {}}}},
        {"corruptions": {"fog": {"1": {"accuracy": "high"}}}},
        {"clean": {"accuracy": True, "nll": 1, "ece": 1, "smece": 1}},
        {"images": "many"},
        {"ood": {"noise": {"images": 3, "scores": {"energy": {"auroc": [], "fpr95": 1}}}}},
        {"ood": 3},
    ],
)
def test_a_damaged_record_is_none(damage):
    values = record_of(0.8, 0.6, 0.5, 0.1).as_json()
    assert ShiftRecord.read(values) is not None
    assert ShiftRecord.read(values | damage) is None
    assert ShiftRecord.read({}) is None
