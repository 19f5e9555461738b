"""Runs that are judged on shifts: at their end, later from the checkpoint, and when stopped."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.config import RunConfig
from toosure.recipes.benchmark.shift_scores import shift_summary
from toosure.runs import Run
from toosure.shifts.plan import ShiftPlan
from toosure.shifts.record import ShiftRecord
from toosure.train import ProgressListener, Runtime, train
from toosure.train import shifts as train_shifts
from toosure.train.restore import predict_shifted

CONFIG = RunConfig(data="digits:train=100,val=20,test=60", model="mlp:width=16", steps=3, every=3)
PLAN = ShiftPlan(("gaussian_noise", "fog"), (2, 4), ("noise",), 40)
PLAIN = Runtime("cpu", threads=1)
JUDGED = replace(PLAIN, shifts=PLAN)


class Listener(ProgressListener):
    def __init__(self):
        self.said = []

    def message(self, message):
        self.said.append(message)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(CONFIG, tmp_path_factory.mktemp("runs"), JUDGED)


def record_of(run):
    return ShiftRecord.of(Run(run.path).shifts)


def test_a_run_is_judged_at_its_end_and_stays_the_same_run(run, tmp_path):
    record = record_of(run)
    assert (record.images, record.available, record.step, record.device) == (40, 60, 3, "cpu")
    assert set(record.ood) == {"corrupted", "noise"} and len(record.cells) == 4
    assert run.status == "complete" and run.warnings == []

    plain = train(CONFIG, tmp_path, PLAIN)
    assert plain.name == run.name and plain.shifts == {}
    assert plain.rows[-1]["val/nll"] == run.rows[-1]["val/nll"]
    weights = [torch.load(r.path / "checkpoints" / "3.pt", weights_only=True) for r in (run, plain)]
    assert all(
        torch.equal(a, b) for a, b in zip(*(w["model"].values() for w in weights), strict=True)
    )


def test_an_average_of_the_weights_is_judged_too_at_the_end_and_from_the_checkpoint(tmp_path):
    """The clean scores are those of the predictions that the average saved."""
    config = replace(CONFIG, average="ema:decay=0.5")
    whole = replace(JUDGED, shifts=replace(PLAN, images=None))
    listener = Listener()
    run = train(config, tmp_path, whole, listener=listener)
    said = [message.split(" under")[0] for message in listener.said if "AUROC" in message]
    assert said == ["last weights", "average ema"]
    judged = json.loads((run.path / "shifts_ema.json").read_text())
    assert judged["clean"] != run.shifts["clean"]
    with np.load(run.path / "predictions_ema.npz") as arrays:
        logits, labels = (torch.from_numpy(arrays[f"test_{name}"]) for name in ("logits", "labels"))
    for name, value in judged["clean"].items():
        assert value == pytest.approx(float(getattr(metrics, name)(logits, labels)), abs=1e-6)
    assert shift_summary(run)["mean"] == judged["mean"]

    for file in ("shifts.json", "shifts_ema.json"):
        (run.path / file).unlink()
    assert shift_summary(Run(run.path)) is None
    train(config, tmp_path, whole)  # the run has ended: it is judged by its checkpoint
    again = json.loads((run.path / "shifts_ema.json").read_text())
    assert again["mean"] == judged["mean"] and again["step"] == judged["step"]


def test_a_cell_is_what_evaluate_shift_predicts(tmp_path):
    whole = replace(JUDGED, shifts=replace(PLAN, images=None))
    run = train(CONFIG, tmp_path, whole)
    logits, labels = predict_shifted(run.path, ("fog", 4), PLAIN)
    expected = float(metrics.ece(logits, labels))
    assert record_of(run).cells["fog", 4]["ece"] == pytest.approx(expected)


def test_a_run_that_ended_before_is_judged_from_its_checkpoint(run, tmp_path):
    train(CONFIG, tmp_path, PLAIN)
    listener = Listener()
    later = train(CONFIG, tmp_path, JUDGED, listener)
    assert replace(record_of(later), seconds=0) == replace(record_of(run), seconds=0)
    assert "2 corruptions x 2 severities, 40 of 60 test images" in listener.said[-1]

    # What was judged is not judged again, unless on more images.
    silent = Listener()
    train(CONFIG, tmp_path, JUDGED, silent)
    assert silent.said == []
    for images, judged in ((20, 40), (50, 50)):
        train(CONFIG, tmp_path, replace(PLAIN, shifts=replace(PLAN, images=images)))
        assert record_of(later).images == judged

    (later.path / "shifts.json").unlink()
    shutil.rmtree(later.path / "checkpoints")
    train(CONFIG, tmp_path, JUDGED, silent)
    assert "no checkpoint is left" in silent.said[-1] and not Run(later.path).shifts


def test_a_stop_while_it_is_judged_loses_nothing(tmp_path, monkeypatch):
    def stops(*_):
        raise train_shifts.JudgingStopped

    with monkeypatch.context() as patched:
        patched.setattr(train_shifts, "judge_shifts", stops)
        stopped = train(CONFIG, tmp_path, JUDGED)
    assert stopped.status == "stopped" and "judge its shifts" in stopped.ending
    finished = train(CONFIG, tmp_path, JUDGED)
    assert finished.status == "complete" and record_of(finished).images == 40
    assert [row["step"] for row in finished.rows] == [0, 3]


def test_progress_is_said_now_and_then_and_stops_on_request(monkeypatch):
    monkeypatch.setattr(train_shifts, "QUIET_SECONDS", -1.0)
    listener = Listener()
    train_shifts.progress_reporter(listener, lambda: False)(0, 5, "clean")
    train_shifts.progress_reporter(listener, lambda: False)(3, 5, "fog:2")
    assert listener.said[0].startswith("judging 5 sets of images")
    assert listener.said[1] == "judged 3 of 5 sets of images; next is fog:2"
    with pytest.raises(train_shifts.JudgingStopped):
        train_shifts.progress_reporter(listener, lambda: True)(3, 5, "fog:2")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(PLAN, ood=("cifar7",)), "--ood cifar7"),
        (replace(PLAN, ood=("none.npz",)), "there is no such file"),
        (replace(PLAN, corruptions=("fogg",)), "did you mean 'fog'"),
    ],
)
def test_a_wrong_name_fails_before_a_step_is_taken(tmp_path, plan, message):
    with pytest.raises(ValueError, match=message):
        train(CONFIG, tmp_path, replace(PLAIN, shifts=plan))
    (folder,) = tmp_path.iterdir()
    assert Run(folder).outcome["step"] == 0 and Run(folder).rows == []


def test_an_objective_that_predicts_for_itself_is_judged_as_it_predicts(tmp_path):
    config = replace(CONFIG, objective="deep_ensemble:members=2")
    run = train(config, tmp_path, replace(JUDGED, shifts=replace(PLAN, images=None)))
    with np.load(run.path / "predictions.npz") as arrays:
        logits, labels = (torch.from_numpy(arrays[f"test_{name}"]) for name in ("logits", "labels"))
    for name, value in record_of(run).clean.items():
        assert value == pytest.approx(float(getattr(metrics, name)(logits, labels)), abs=1e-6)
