"""Configs: one spelling, one id, mistakes found early, JSON there and back."""

import copy
import dataclasses
import json
import pickle
import subprocess
import sys

import pytest

from toosure import config as config_module
from toosure.config import RunConfig, sweep_of
from toosure.words import parse

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


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "digits-mlp-sgd-lr0.1-s0-44136fa3"),
        (
            EVERYTHING,
            "digits-train100-noise0.1-mlp-width50-csam-rho0.1-gamma2-lr0.1-mse-scalehalf-"
            "step-at0.5-0.9-s7-39e85c14",
        ),
        (
            {"optimizer": "sam:base=adamw,rho=0.1,lr=0.01,betas=0.8:0.9", "seed": 3},
            "digits-mlp-sam-baseadamw-rho0.1-lr0.01-betas0.8-0.9-s3-ad5362f1",
        ),
        ({"optimizer": "sam:base=(gd:lr=0.1)"}, "digits-mlp-sam-basegd-lr0.1-s0-c782986a"),
        (
            {"loss": "mdca:base=(focal:gamma=1)", "schedule": "cosine"},
            "digits-mlp-sgd-lr0.1-mdca-base-focal-gamma1-cosine-s0-802c86ca",
        ),
        (
            {"objective": "calmo:robust=0.25,eps=8/255", "batch": "full"},
            "digits-mlp-sgd-lr0.1-calmo-robust0.25-s0-402a4eb7",
        ),
        (
            {"data": 'imagefolder:"/a b",size=64', "model": "wrn:depth=10"},
            "imagefolder-a-b-size64-wrn-depth10-sgd-lr0.1-s0-d331d3a3",
        ),
        (
            {"optimizer": "bulksgd:lr=2/30,momentum=0.9", "budget": 0.1, "measure": ["trace"]},
            "digits-mlp-bulksgd-lr0.06666666666666667-momentum0.9-s0-d21e1351",
        ),
    ],
)
def test_names_and_ids_of_run_folders_stay_what_they_are(settings, name):
    assert RunConfig(**settings).name == name


def test_each_word_is_parsed_once(monkeypatch):
    parsed = []

    def counting(kind, text):
        parsed.append(kind)
        return parse(kind, text)

    monkeypatch.setattr(config_module, "parse", counting)
    config = RunConfig(**EVERYTHING)
    for kind in ("data", "model", "optimizer", "loss", "schedule"):
        assert config.word(kind) is config.word(kind)
        assert str(config.word(kind)) == getattr(config, kind)
    assert config.full_batch is False and config.id
    assert sorted(parsed) == ["data", "loss", "model", "optimizer", "schedule"]


def test_copies_are_equal_and_hold_text_alone():
    config = RunConfig(**EVERYTHING)
    copies = [
        pickle.loads(pickle.dumps(config)),
        copy.deepcopy(config),
        dataclasses.replace(config),
        RunConfig(**dataclasses.asdict(config)),
    ]
    for other in copies:
        assert other == config and hash(other) == hash(config) and other.name == config.name
        assert other.word("optimizer") == config.word("optimizer")
    assert dataclasses.asdict(config).keys() == {f.name for f in dataclasses.fields(RunConfig)}
    assert type(config.optimizer) is str and "word" not in repr(config)
    assert dataclasses.replace(config, optimizer="sgd").word("optimizer").name == "sgd"


def test_a_method_of_ones_own_is_found_in_another_process(tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text("def make(inputs, classes, width: int = 3): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(model="own_nets:make,width=4")
    sys.modules.pop("own_nets")
    (tmp_path / "config.pickle").write_bytes(pickle.dumps(config))

    # As on a node of a cluster: the config arrives before the module's folder is on the path.
    code = f"""
import pickle, sys
from pathlib import Path
config = pickle.loads(Path({str(tmp_path / "config.pickle")!r}).read_bytes())
sys.path.insert(0, {str(tmp_path)!r})
print(config.word("model").settings, config.word("model").method.target.__module__)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == ["{'width':", "4}", "own_nets"], run.stderr


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
        ('{"measure": ["gni", "none"]}', "none measures nothing: give it alone"),
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
    for text, said in (
        ('{"steps": "abc"}', "steps must be a whole number"),
        ("[1]", "a run's config is a JSON object; got list"),
        ("[" * 100_000, "it is nested too deeply"),
    ):
        (tmp_path / "own.json").write_text(text)
        with pytest.raises(ValueError, match=f"own.json.*{said}"):
            RunConfig.read(tmp_path / "own.json")
    (tmp_path / "own.json").write_text('\ufeff{"steps": 3}')  # as Windows saves it
    assert RunConfig.read(tmp_path / "own.json").steps == 3


def test_sweep_is_the_product_without_repeats():
    configs = sweep_of(optimizer=["sgd:lr=0.1", "gd:lr=0.1"], batch=[32, 64], seed=[0, 1])
    assert len(configs) == 6  # gd has no batch
    assert [c.optimizer for c in configs] == ["sgd:lr=0.1"] * 4 + ["gd:lr=0.1"] * 2
