"""Judging: against the metrics, scikit-learn, closed forms, and image by image."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from toosure import metrics
from toosure.data import Split, digits
from toosure.shifts.judge import detection, judge_shifts, ood_scores
from toosure.shifts.ood_sets import OODSet, load_ood_set
from toosure.shifts.plan import ShiftPlan
from toosure.shifts.record import OOD_SCORES, ShiftRecord

PLAN = ShiftPlan(("gaussian_noise", "contrast"), (1, 5))
DATA = digits(train=200, val=0, test=120)


@pytest.fixture(scope="module")
def network():
    """A linear network that knows the digits: least squares on the training images."""
    x = DATA.train.x.flatten(1)
    targets = torch.nn.functional.one_hot(DATA.train.y, 10).float()
    weights = torch.linalg.solve(x.T @ x + 10 * torch.eye(64), x.T @ targets)
    return lambda x: 8 * x.flatten(1) @ weights


def test_each_cell_is_what_the_metrics_say_of_the_shifted_test_set(network):
    record = judge_shifts(network, DATA, PLAN)
    assert record.images == record.available == 120
    assert set(record.cells) == {(c, s) for c in PLAN.corruptions for s in PLAN.severities}
    splits = {cell: DATA.shifted(cell) for cell in record.cells} | {"clean": DATA.test}
    for cell, split in splits.items():
        found = record.clean if cell == "clean" else record.cells[cell]
        logits = network(split.x)
        for name, value in found.items():
            assert value == pytest.approx(float(getattr(metrics, name)(logits, split.y))), cell
    assert record.clean["accuracy"] > 0.8 > record.cells["contrast", 5]["accuracy"] + 0.05


def test_scores_of_unknown_data_are_those_of_scikit_learn(network):
    outside = load_ood_set("noise", ShiftPlan(images=80), DATA.inputs)
    record = judge_shifts(network, DATA, PLAN, [outside])
    known = ood_scores(network(DATA.test.x))
    unknown = ood_scores(network((outside.pixels.float() / 255 - DATA.mean) / DATA.std))
    truth = [1] * 120 + [0] * 80
    for score in OOD_SCORES:
        values = torch.cat([known[score], unknown[score]]).numpy()
        assert record.ood["noise"].auroc[score] == pytest.approx(roc_auc_score(truth, values))
        fpr, tpr, _ = roc_curve(truth, values, drop_intermediate=False)
        assert record.ood["noise"].fpr95[score] == pytest.approx(fpr[tpr >= 0.95].min())


def test_the_pooled_auroc_is_the_mean_over_cells(network):
    """An AUROC, and a share beyond a threshold of the known images, are linear in the unknown."""
    record = judge_shifts(network, DATA, PLAN)
    clean = network(DATA.test.x)
    for score in OOD_SCORES:
        cells = [network(DATA.shifted(cell).x) for cell in record.cells]
        auroc = np.mean([float(metrics.auroc_ood(clean, each, score)) for each in cells])
        fpr95 = np.mean([float(metrics.fpr95_ood(clean, each, score)) for each in cells])
        assert record.ood["corrupted"].auroc[score] == pytest.approx(auroc)
        assert record.ood["corrupted"].fpr95[score] == pytest.approx(fpr95)


def test_equal_sets_are_told_apart_by_chance_and_separate_ones_always():
    low = ood_scores(torch.tensor([[1.0, 0.0]]).repeat(40, 1))
    high = ood_scores(torch.tensor([[9.0, 0.0]]).repeat(40, 1))
    same, apart = detection(high, high, ""), detection(high, low, "")
    for score in OOD_SCORES:
        assert same.auroc[score] == 0.5 and same.fpr95[score] == 1
        assert apart.auroc[score] == 1 and apart.fpr95[score] == 0


def test_log_probabilities_have_no_energy(network):
    """A mixture predicts them; their logsumexp is 0, and rounding would rank them."""
    record = judge_shifts(lambda x: network(x).log_softmax(1), DATA, PLAN)
    assert set(record.ood["corrupted"].auroc) == {"confidence", "entropy", "margin"}
    logits = judge_shifts(network, DATA, PLAN)
    for score in record.ood["corrupted"].auroc:
        ours, expected = (each.ood["corrupted"].auroc[score] for each in (record, logits))
        assert ours == pytest.approx(expected, abs=1e-3)


def test_a_part_of_the_images_is_the_same_part_of_every_set(network):
    seen = []

    def predict(x):
        seen.append(x)
        return network(x)

    plan = replace(PLAN, corruptions=("contrast",), images=30)
    record = judge_shifts(predict, DATA, plan)
    assert (record.images, record.available) == (30, 120)
    clean, mild, _ = (x.flatten(1) for x in seen)
    # Contrast draws values towards the mean of an image: what is left is in proportion.
    centred = [(x * DATA.std.item()).sub(x.mean(1, keepdim=True)).flatten() for x in (clean, mild)]
    assert torch.corrcoef(torch.stack(centred))[0, 1] > 0.95
    again = judge_shifts(network, DATA, plan)
    assert again.cells == record.cells and again.ood == record.ood


def test_progress_names_each_set_and_may_end_the_work(network):
    told = []
    outside = OODSet("theirs", torch.zeros(4, 1, 8, 8, dtype=torch.uint8))
    judge_shifts(network, DATA, PLAN, [outside], lambda *each: told.append(each))
    names = ["clean", "gaussian_noise:1", "gaussian_noise:5", "contrast:1", "contrast:5", "theirs"]
    assert told == [(place, 6, name) for place, name in enumerate(names)]

    def stop(done, total, name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_shifts(network, DATA, PLAN, progress=stop)


def test_what_cannot_be_judged_says_why(network):
    test = DATA.test
    nothing = Split(test.x[:0], test.y[:0], test.clean[:0], test.indices[:0])
    with pytest.raises(ValueError, match="this data set has none"):
        judge_shifts(network, replace(DATA, test=nothing), PLAN)
    with pytest.raises(ValueError, match="no corruption is called 'fogg'; did you mean 'fog'"):
        judge_shifts(network, DATA, ShiftPlan(("fogg",), (1,)))
    with pytest.raises(ValueError, match="probabilities"):
        judge_shifts(lambda x: network(x).softmax(1), DATA, PLAN)
    with pytest.raises(ValueError, match="finite"):
        judge_shifts(lambda x: network(x) * torch.inf, DATA, PLAN)


def test_a_temperature_is_judged_beside_the_raw_logits(network):
    plain = judge_shifts(network, DATA, PLAN)
    record = judge_shifts(network, DATA, PLAN, temperature=2.0)
    halved = judge_shifts(lambda x: network(x) / 2, DATA, PLAN)
    for place, cell in record.cells.items():
        assert {name: cell[name] for name in plain.cells[place]} == plain.cells[place]
        for name in ("nll", "ece"):
            expected = halved.cells[place][name]
            assert cell[f"{name}_after_temperature"] == pytest.approx(expected, rel=1e-5)

    again = ShiftRecord.read(json.loads(json.dumps(record.as_json())))
    assert again == record
    assert again.means()["ece_after_temperature"] == pytest.approx(halved.means()["ece"], rel=1e-5)
    assert "ece_after_temperature" not in plain.means()
