"""Kept scores take up what a run was judged on after it was scored."""

import json

import numpy as np
from typer.testing import CliRunner

from toosure.cli import app
from toosure.recipes.benchmark.saved_rows import CORRUPTED_FILE
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.runs import Run


def reproduce(*words):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


def test_runs_that_were_not_judged_against_a_set_of_ood_are_missing(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "svhn.npy", images)
    where = ("--out", tmp_path / "runs", "--scores", tmp_path / "kept", "--device", "cpu")
    words = ("benchmark", "--quick", "--method", "sgd", "--seed", "0", *where)
    words += ("--shift", "all:images=20")
    more = (*words, "--ood", tmp_path / "svhn.npy")
    reproduce(*words)
    assert "(1 runs, 1 missing)" in reproduce(*more, "--only", "table", "--list").stdout

    reproduce(*more)
    first, second = (tmp_path / "kept" / "scores.jsonl").read_text().splitlines()
    assert "svhn" not in json.loads(first)["shifts"]["ood"]
    assert json.loads(second)["shifts"]["ood"].keys() == {"corrupted", "noise", "svhn"}
    assert "(1 runs, 0 missing)" in reproduce(*more, "--only", "table", "--list").stdout


def test_runs_that_were_judged_on_fewer_images_are_missing(tmp_path):
    where = ("--out", tmp_path / "runs", "--scores", tmp_path / "kept", "--device", "cpu")
    words = ("benchmark", "--quick", "--method", "sgd", "--seed", "0", *where)
    reproduce(*words, "--shift", "all:images=20")

    def asked(images):
        return reproduce(*words, "--only", "table", "--list", "--shift", images).stdout

    assert "(1 runs, 0 missing)" in asked("all:images=10")
    assert "(1 runs, 1 missing)" in asked("all:images=30") and "1 missing" in asked("all")

    page = tmp_path / "page.md"
    reproduce(*words, "--shift", "all:images=30", "--ood", "mine=noise", "--write", page)
    first, second = (tmp_path / "kept" / "scores.jsonl").read_text().splitlines()
    assert [json.loads(each)["shifts"]["images"] for each in (first, second)] == [20, 30]
    assert "--shift all:images=30 --ood mine=noise" in page.read_text()
    assert "30 images" in page.read_text()


def test_a_file_of_unknown_images_is_looked_up_before_anything_is_trained(tmp_path):
    where = ("--out", tmp_path / "runs", "--device", "cpu")
    words = ("csam", "--quick", "--only", "ood", "--shift", "all", *where)
    told = reproduce(*words, "--ood", f"svhn={tmp_path}/svhn.npz")
    assert told.exit_code == 2 and "svhn.npz: there is no such file" in told.stderr
    assert not (tmp_path / "runs").exists()


def test_kept_scores_take_up_imagenet_c_when_it_is_judged_later(tmp_path):
    where = ("--out", tmp_path / "runs", "--scores", tmp_path / "kept", "--device", "cpu")
    reproduce("benchmark", "--quick", "--method", "sgd", "--seed", "0", *where)
    (run,) = [Run(folder) for folder in (tmp_path / "runs").iterdir() if folder.is_dir()]
    files = ScoreFiles(tmp_path / "kept")
    assert not files.add([run])

    scores = {"fog": {"1": {"accuracy": 0.5, "ece": 0.1}, "2": {"accuracy": 0.3, "ece": 0.3}}}
    (run.path / CORRUPTED_FILE).write_text(json.dumps(scores))
    (record,) = files.add([Run(run.path)])
    assert record.corrupted == {"fog": {"accuracy": 0.4, "ece": 0.2}}
    assert not files.add([Run(run.path)])
