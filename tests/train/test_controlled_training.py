"""`--control radius` in a run: its split, its rows, a stopped run, and what is refused."""

import math

import pytest
import torch
from test_resume import interrupted, same_run

from toosure.config import RunConfig
from toosure.data import digits
from toosure.runs.looks import LOOKS_FILE, with_looks
from toosure.train import Runtime, train
from toosure.train.checkpoint import load_checkpoint
from toosure.train.control import cut_control_split, settings_of
from toosure.train.restore import restore_run

SMALL = {
    "data": "digits:train=200,val=60,noise=0.1",
    "model": "mlp:width=16",
    "batch": 32,
    "measure": (),
    "optimizer": "csam:lr=0.3,rho=0.05,momentum=0.9",
    "control": "radius:actuator=both,size=60,every=3,dead_band=1",
}
CPU = Runtime("cpu", threads=1)
# These runs are too short to be steered to their goal, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:control ended outside")


def test_the_control_split_is_cut_from_training_data_by_the_seed():
    data = digits(train=200, val=60)
    config = RunConfig(**SMALL)
    rest, control = cut_control_split(config, data)
    indices = [set(split.indices.tolist()) for split in (rest.train, control, data.train)]
    assert not indices[0] & indices[1]
    assert indices[0] | indices[1] == indices[2]
    assert len(control) == 60
    assert rest.val is data.val and rest.test is data.test

    again = cut_control_split(config, data)[1]
    other = cut_control_split(RunConfig(**SMALL, seed=1), data)[1]
    assert torch.equal(control.indices, again.indices)
    assert not torch.equal(control.indices, other.indices)

    without = RunConfig(data="digits:train=200,val=60")
    assert cut_control_split(without, data) == (data, None)
    default = RunConfig(**(SMALL | {"control": "radius"}))
    assert len(cut_control_split(default, data)[1]) == 20  # a tenth


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "optimizer": "sgd:lr=0.3",
            "loss": "focal:gamma=1",
            "control": "radius:actuator=focal,every=3",
        },
        {"average": "ema", "control": "radius:weights=ema,every=3,size=60,dead_band=0"},
    ],
    ids=["csam", "focal", "ema"],
)
def test_a_stopped_run_goes_on_bit_for_bit(more, tmp_path):
    config = RunConfig(**(SMALL | more), steps=18, every=3)
    whole = train(config, tmp_path / "whole", CPU)
    resumed = interrupted(config, tmp_path / "cut", 7, 13)
    same_run(whole, resumed)
    controls = [load_checkpoint(run.path)[0]["control"] for run in (whole, resumed)]
    assert controls[0] == controls[1]
    looks = [(run.path / LOOKS_FILE).read_text() for run in (whole, resumed)]
    assert looks[0] == looks[1] != ""


def test_rows_hold_what_the_controller_saw_and_did(tmp_path):
    config = RunConfig(**SMALL, steps=24, every=3)
    run = train(config, tmp_path, CPU)
    assert "radius-actuatorboth" in run.name
    state = load_checkpoint(run.path)[0]
    before = 0.05
    for row in run.rows[1:]:
        rho = row["control/rho"]
        assert row["control/gamma"] == pytest.approx(rho / 0.05)  # gamma starts at 1
        assert row["control/acted"] == (rho > before) - (rho < before)
        error, se = row.get("control/log_temperature"), row.get("control/standard_error", math.inf)
        if row["control/acted"] == 1:
            assert error > se  # a dead band of one
        before = rho
    assert before != 0.05
    assert state["optimizer"]["param_groups"][0]["rho"] == before

    # What predicts afterwards is given the same training data.
    data = restore_run(run.path, CPU).data
    assert len(data.train) == 140


def test_every_look_is_kept_where_rows_are_far_apart(tmp_path):
    often = train(RunConfig(**SMALL, steps=24, every=3), tmp_path, CPU)
    rarely = train(RunConfig(**SMALL, steps=24, at=(24,)), tmp_path, CPU)
    looks = with_looks(rarely).columns
    assert looks["step"].tolist() == [3, 6, 9, 12, 15, 18, 21, 24]
    for key in ("control/rho", "control/gamma", "control/log_temperature", "control/acted"):
        assert looks[key] == pytest.approx(often.columns[key][1:], nan_ok=True)
    assert len(rarely.rows) == 1
    assert "seconds" not in (rarely.path / LOOKS_FILE).read_text()


def test_without_control_nothing_is_cut_and_the_id_stays(tmp_path):
    plain = RunConfig(optimizer="sgd:momentum=0.9,lr=1/10", steps=100)
    assert plain.name == "digits-mlp-sgd-lr0.1-momentum0.9-s0-65eeefe4"
    run = train(RunConfig(data="digits:train=60", steps=1, measure=()), tmp_path, CPU)
    assert not any(key.startswith("control/") for row in run.rows for key in row)
    assert "control" not in load_checkpoint(run.path)[0]


def test_looks_at_an_average_are_spaced_by_the_refresh_of_its_batchnorm_too(tmp_path):
    """60 + 140 examples forward against 6 passes over 32: the share stays at 3 %."""
    more = {"average": "ema", "control": "radius:weights=ema,size=60,dead_band=0,start=0"}
    config = RunConfig(**(SMALL | more), steps=36, at=(34, 35))
    run = train(config, tmp_path, CPU)
    assert math.ceil(200 / (0.03 * 6 * 32)) == 35
    looked = ["control/acted" in row for row in run.rows if row["step"] in (34, 35)]
    assert looked == [False, True]


def test_nothing_moves_while_the_rate_warms_up():
    config = RunConfig(**SMALL, steps=100, schedule="cosine:warmup=20")
    assert settings_of(config).start == 0.2
    assert settings_of(RunConfig(**SMALL, steps=100)).start == 0.05


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"optimizer": "sgd:lr=0.1"}, "SGD has no radius rho"),
        ({"optimizer": "sam:lr=0.1"}, "SAM has no gamma"),
        ({"control": "radius:size=101"}, "leaves less than half of 200"),
        ({"control": "radius:weights=ema"}, "add --average ema"),
    ],
)
def test_a_run_that_cannot_be_controlled_says_why(more, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(RunConfig(**(SMALL | more), steps=2), tmp_path, CPU)


def test_a_wrong_setting_is_refused_before_anything_is_trained():
    with pytest.raises(ValueError, match="rate is a factor above 1"):
        RunConfig(control="radius:rate=0.5")
    with pytest.raises(ValueError, match="did you mean 'radius'"):
        RunConfig(control="radus")


def test_a_run_that_ends_far_outside_its_band_is_told_by_its_page(tmp_path):
    config = RunConfig(**(SMALL | {"control": "radius:size=60,every=3,gain=0.01"}), steps=90)
    with pytest.warns(UserWarning, match="control ended outside its dead band: .* too sure by"):
        run = train(config, tmp_path, CPU)
    (told,) = [each for each in run.warnings if "dead band" in each]
    assert told.startswith("the controller ended outside its dead band: the network is too sure")
