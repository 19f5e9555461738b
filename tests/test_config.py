"""Configs: one spelling, one id, mistakes found early, JSON there and back."""

import dataclasses
import json

import pytest

from toosure.config import RunConfig, sweep_of

EVERYTHING = {
    "data": "digits:train=100,noise=0.1",
    "model": "mlp:width=50",
    "optimizer": "csam:lr=0.1,rho=0.1,gamma=2",
    "loss": "mse:scale=half",
    "schedule": "step:at=0.5:0.9",
    "steps": 10,
    "batch": 32,
    "seed": 7,
    "clip": 1.0,
    "precision": "bf16",
    "at": (1, 2, 4),
    "measure": ("gn_sharpness", "batch_sharpness"),
    "eps": 0.1,
}


def test_json_there_and_back():
    config = RunConfig(**EVERYTHING)
    assert RunConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json())["at"] == [1, 2, 4]
    assert RunConfig.from_json("{}") == RunConfig()


def test_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunConfig().seed = 1
    assert len({RunConfig(), RunConfig(seed=0), RunConfig(seed=1)}) == 2


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"optimizer": "sgd:momentum=0.9,lr=1/10"}, {"optimizer": "sgd:lr=0.1,momentum=0.90"}),
        ({"optimizer": "sam:base=(gd:lr=0.1)"}, {"optimizer": "sam:base=gd,lr=0.1", "batch": None}),
        ({"optimizer": "gd:lr=0.1", "batch": 64}, {"optimizer": "gd:lr=0.1"}),
        ({"at": (4, 2, 2)}, {"at": (2, 4)}),
        ({"measure": ("gni", "gn_sharpness")}, {"measure": ("gn_sharpness", "gni")}),
        ({"budget": 0.1, "every": 20}, {"budget": 0.1}),
        ({"loss": "ce:label_smoothing=0.0"}, {}),
        ({"batch": "full"}, {"batch": None}),
        ({"clip": 1}, {"clip": 1.0}),
        ({"measure": "trace"}, {"measure": ("trace",)}),
        ({"at": [1, 2]}, {"at": (2, 1)}),
    ],
)
def test_equal_runs_are_equal(one, two):
    one, two = RunConfig(**one), RunConfig(**two)
    assert one == two and one.id == two.id and one.name == two.name


def test_every_setting_makes_another_run():
    ids = {RunConfig().id} | {
        RunConfig(**{name: value}).id for name, value in EVERYTHING.items() if name != "steps"
    }
    assert len(ids) == len(EVERYTHING)
    assert RunConfig(steps=10).id != RunConfig().id


def test_names_are_readable_and_safe():
    config = RunConfig(optimizer="sgd:lr=0.1", seed=0)
    assert config.name == f"digits-mlp-sgd-lr0.1-s0-{config.id}"
    odd = RunConfig(data='imagefolder:"/etc/../a b<script>"', seed=1)
    assert set(odd.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")
    assert len(RunConfig(data=f"imagefolder:{'long/' * 100}").name) < 120


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "sdg"}, "did you mean 'sgd'"),
        ({"optimizer": "sgd:rl=0.1"}, "did you mean 'lr'"),
        ({"model": "mpl"}, "did you mean 'mlp'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"loss": "mse:scale=double"}, "must be mean"),
        ({"measure": ("gn_sharpnes",)}, "did you mean 'gn_sharpness'"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"every": 0}, "every must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"budget": 1.5}, "share of the time"),
        ({"at": (1,), "budget": 0.1}, "one of them"),
        ({"every": 5, "budget": 0.1}, "one of them"),
        ({"at": (3000,)}, "steps from 0 to 2000"),
        ({"clip": 0.0}, "positive norm"),
        ({"precision": "fp8"}, "float32, float64, bf16 or fp16"),
        ({"eps": -1.0}, "eps is the radius of a ball, above 0; got -1.0"),
        ({"eps": float("nan")}, "above 0; got nan"),
        ({"schedule": "step:at=1000"}, "shares of the run"),
    ],
)
def test_mistakes_are_found_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"steps": 10.5}', "steps must be a whole number; got float 10.5"),
        ('{"steps": "100"}', "steps must be a whole number; got str '100'"),
        ('{"steps": true}', "steps must be a whole number; got bool True"),
        ('{"batch": "some"}', "batch must be a whole number or none; got str 'some'"),
        ('{"every": "2"}', "every must be a whole number; got str '2'"),
        ('{"clip": "1"}', "clip must be a number or none; got str '1'"),
        ('{"budget": [0.1]}', "budget must be a number or none; got list .0.1."),
        ('{"at": 5}', "at must be a list of whole numbers; got int 5"),
        ('{"at": ["5"]}', "at must be a whole number; got str '5'"),
        ('{"measure": null}', "measure must be a list of words; got NoneType None"),
        ('{"measure": "gn_sharpnes"}', "cannot measure 'gn_sharpnes'; did you mean"),
        ('{"optimizer": 5}', "optimizer must be a word; got int 5"),
        ('{"objective": 5}', "objective must be a word or none; got int 5"),
        ('{"data": null}', "data must be a word; got NoneType None"),
        ('{"precision": 16}', "precision must be a word; got int 16"),
    ],
)
def test_types_are_checked_before_anything_else(text, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.from_json(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"step": 3}', "no setting 'step'; did you mean 'steps'"), ("[]", "JSON object; got list")],
)
def test_bad_json(text, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.from_json(text)


def test_read_says_which_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        RunConfig.read(tmp_path / "none.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        RunConfig.read(tmp_path)


def test_sweep_is_the_product_without_repeats():
    configs = sweep_of(optimizer=["sgd:lr=0.1", "gd:lr=0.1"], batch=[32, 64], seed=[0, 1])
    assert len(configs) == 6  # gd has no batch
    assert [c.optimizer for c in configs] == ["sgd:lr=0.1"] * 4 + ["gd:lr=0.1"] * 2
