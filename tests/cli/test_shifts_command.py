"""`toosure train --shift all` and `toosure evaluate RUN --shifts`, from the words to the tables."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from toosure import Watch
from toosure.cli import app
from toosure.runs import find_runs
from toosure.shifts.record import ShiftRecord

WORDS = [
    "--data",
    "digits:train=100,val=20,test=60",
    "--model",
    "mlp:width=16",
    "--steps",
    "2",
    "--every",
    "2",
]


def toosure(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs: one judged at its end, one not."""
    out = tmp_path_factory.mktemp("runs")
    judged = ("--shift", "all:images=20", "--ood", "noise", "digits", "--seed", 0)
    result = toosure("train", *WORDS, "--out", out, "--device", "cpu", *judged)
    assert result.exit_code == 0, result.output
    assert "under 15 corruptions x 5 severities, 20 of 60 test images" in result.output
    assert toosure("train", *WORDS, "--out", out, "--device", "cpu", "--seed", 1).exit_code == 0
    return find_runs(out)


def test_a_judged_run_is_printed_from_its_folder(runs):
    result = toosure("evaluate", runs[0].path, "--shifts", "--images", 20, "--ood", "noise")
    assert result.exit_code == 0, result.output
    assert "was judged before" in result.stderr and "unnormalised: no --baseline" in result.stdout
    record = ShiftRecord.of(runs[0].shifts)
    assert set(record.ood) == {"corrupted", "noise"}  # not its own data
    for words in ("glass_blur", "mean of all", f"{100 * record.ood['noise'].auroc['energy']:.2f}"):
        assert words in result.stdout
    assert "20 of 60 test images" in result.stdout


def test_a_run_that_was_not_judged_is_judged_now_and_compared(runs):
    folders = [run.path for run in runs]
    words = ("--shifts", "--images", 20, "--baseline", folders[0])
    result = toosure("evaluate", *folders, *words, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["mean_corruption_error"] == 1 and second["mean_corruption_error"] != 1
    assert len(second["corruptions"]) == 15 and (folders[1] / "shifts.json").is_file()

    table = toosure("evaluate", *folders, *words).stdout
    assert "corrupted ECE, points" in table and f"% of that of {folders[0].name}" in table


def test_files_of_one_name_are_told_apart_and_earlier_sets_stay(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs[0].path, folder)
    words = ("evaluate", folder, "--shifts", "--images", 20, "--json", "--device", "cpu", "--ood")
    images = np.random.default_rng(0).integers(0, 256, (2, 9, 8, 8), dtype=np.uint8)
    for name, array in zip(("a", "b"), images, strict=True):
        np.savez(tmp_path / f"{name}.npz", images=array)

    found = [json.loads(toosure(*words, f"mine={tmp_path}/{name}.npz").stdout) for name in "abb"]
    auroc = [each["ood"]["mine"]["scores"]["energy"]["auroc"] for each in found]
    assert auroc[0] != auroc[1] == auroc[2]
    assert all("noise" in each["ood"] for each in found)  # judged at the end of the run

    (tmp_path / "b.npz").write_text("hello")
    broken = toosure(*words, f"mine={tmp_path}/b.npz")
    assert broken.exit_code == 2 and "cannot be read as images" in broken.output


def test_nothing_that_was_judged_is_lost_to_other_images(runs, tmp_path):
    folder, baseline = tmp_path / "run", tmp_path / "baseline"
    for copy in (folder, baseline):
        shutil.copytree(runs[0].path, copy)  # judged on 20 images, with noise
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images)
    words = ("evaluate", folder, "--shifts", "--device", "cpu", "--json")
    mine = ("--ood", f"mine={tmp_path}/a.npz")
    assert toosure(*words, "--images", 20, *mine).exit_code == 0
    kept = (folder / "shifts.json").read_bytes()

    # The file's name is not known: it is asked for, and nothing changes, also at the baseline.
    refused = toosure(*words, "--images", 30, "--baseline", baseline)
    said = " ".join(refused.output.split())
    assert refused.exit_code == 2 and "add --ood mine=FILE to judge mine on these, too" in said
    assert (folder / "shifts.json").read_bytes() == kept

    # With the file both sets are judged on the new images, and the baseline keeps its noise.
    found = toosure(*words, "--images", 30, *mine, "--baseline", baseline)
    assert found.exit_code == 0, found.output
    assert {"noise", "mine"} < set(json.loads(found.stdout)["ood"])
    record = ShiftRecord.of(json.loads((baseline / "shifts.json").read_text()))
    assert record.images == 30 and "noise" in record.ood


def test_a_baseline_that_has_the_corruptions_is_only_read(runs, tmp_path):
    folder, baseline = tmp_path / "run", tmp_path / "baseline"
    for copy in (folder, baseline):
        shutil.copytree(runs[0].path, copy)
    before = (baseline / "shifts.json").read_bytes()
    np.savez(tmp_path / "a.npz", images=np.zeros((9, 8, 8), dtype=np.uint8))
    words = ("--shifts", "--images", 20, "--ood", f"mine={tmp_path}/a.npz", "--device", "cpu")
    result = toosure("evaluate", folder, *words, "--baseline", baseline)
    assert result.exit_code == 0, result.output
    assert (baseline / "shifts.json").read_bytes() == before


def test_more_images_are_not_replaced_by_fewer(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs[0].path, folder)
    kept = (folder / "shifts.json").read_text()  # of 20 images
    result = toosure("evaluate", folder, "--shifts", "--images", 10)
    assert result.exit_code == 2 and "judged on 20 images" in " ".join(result.output.split())
    assert (folder / "shifts.json").read_text() == kept


def test_a_baseline_without_errors_gives_no_ratio(runs, tmp_path):
    perfect = tmp_path / "perfect"
    shutil.copytree(runs[0].path, perfect)
    record = json.loads((perfect / "shifts.json").read_text())
    for scores in record["corruptions"]["fog"].values():
        scores["accuracy"] = 1.0
    (perfect / "shifts.json").write_text(json.dumps(record))

    words = ("evaluate", runs[0].path, "--shifts", "--images", 20, "--baseline", perfect)
    assert "no mean corruption error: perfect is always right" in toosure(*words).stdout
    found = json.loads(toosure(*words, "--json").stdout)
    assert found["mean_corruption_error"] is None


def test_a_baseline_on_other_images_is_refused(runs, tmp_path):
    for name, changes in (("data", {"data": "cifar10"}), ("size", {})):
        other = tmp_path / name
        shutil.copytree(runs[0].path, other)
        config = json.loads((other / "config.json").read_text()) | changes
        (other / "config.json").write_text(json.dumps(config))
    record = json.loads((tmp_path / "size" / "shifts.json").read_text())
    (tmp_path / "size" / "shifts.json").write_text(json.dumps(record | {"available": 7777}))

    words = ("evaluate", runs[0].path, "--shifts", "--images", 20, "--baseline")
    messages = {"data": "--baseline on cifar10: the mean", "size": "on 20 of 7,777"}
    for name, message in messages.items():
        result = toosure(*words, tmp_path / name)
        assert result.exit_code == 2 and message in result.output, result.output


def test_two_runs_of_one_name_are_both_shown(runs, tmp_path):
    name = runs[0].path.name
    shutil.copytree(runs[0].path, tmp_path / name)
    words = ("--shifts", "--images", 20, "--json", "--device", "cpu")
    result = toosure("evaluate", runs[0].path, tmp_path / name, *words)
    found = [json.loads(line)["run"] for line in result.stdout.splitlines()]
    assert found == [str(runs[0].path), str(tmp_path / name)]


def test_a_wrong_baseline_is_named_before_anything_is_judged(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs[0].path, folder)
    before = (folder / "shifts.json").read_bytes()
    words = ("evaluate", folder, "--shifts", "--images", 30, "--baseline", tmp_path / "none")
    result = toosure(*words)
    assert result.exit_code == 2 and "needs the folder of a run; got" in result.output
    assert (folder / "shifts.json").read_bytes() == before


@pytest.mark.parametrize("words", [("--shift", "fog:2"), ("--shifts",)])
def test_a_loop_of_ones_own_is_pointed_to_its_example(words, tmp_path):
    model = torch.nn.Linear(4, 3)
    data = torch.randn(30, 4), torch.arange(30) % 3
    with Watch(model, None, data, run=tmp_path / "own", config={"data": "waves"}, measure=()):
        pass
    result = toosure("evaluate", tmp_path / "own", *words)
    said = " ".join(result.output.split())
    assert result.exit_code == 2 and "the run of a loop of your own" in said
    assert "examples/shifts.py" in said


def test_a_run_of_validation_rows_alone_is_judged_by_them(tmp_path):
    labels = np.arange(60) % 3
    np.savez(tmp_path / "predictions.npz", val_logits=3 * np.eye(3)[labels], val_labels=labels)
    result = toosure("evaluate", tmp_path)
    assert result.exit_code == 0, result.output
    assert "kept no test predictions: its validation rows are judged" in result.stderr
    assert toosure("evaluate", tmp_path, "--split", "test").exit_code == 2
    assert toosure("evaluate", tmp_path, "--split", "val").stdout == result.stdout


def test_what_cannot_be_judged_says_why(runs, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(runs[1].path, bare)
    shutil.rmtree(bare / "checkpoints")
    cases = [
        ((bare, "--shifts", "--images", 30), "a complete run (it is complete) and its checkpoint"),
        ((tmp_path, "--shifts"), "needs the folder of a run"),
        ((bare, "--images", 30), "goes with --shifts"),
        ((bare, "--ood", "noise"), "goes with --shifts: add that, or leave --ood out"),
        ((bare, "--shifts", "--html", "a.html"), "--html does not go with --shifts"),
        ((bare, "--shifts", "--kind", "probs"), "--kind does not go with --shifts"),
        ((bare, "--shifts", "--bins", 7), "--bins does not go with --shifts"),
        ((bare, "--shifts", "--class-1"), "--class-1 does not go with --shifts"),
        ((bare, "--shift", "fog:3", "--kind", "probs"), "--kind does not go with --shift"),
        ((runs[0].path, "--shifts", "--ood", "cifar7"), "--ood cifar7"),
        ((runs[0].path, "--shifts", "--device", "tpu"), "cannot be used"),
    ]
    for words, message in cases:
        result = toosure("evaluate", *words)
        assert result.exit_code == 2 and message in " ".join(result.output.split()), words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shift", "all", "fog:3"), "give it alone"),
        (("--shift", "all:image=3"), "did you mean 'images'"),
        (("--ood", "noise"), "--ood goes with --shift all"),
        (("--shift", "fog:3", "--ood", "noise"), "--ood goes with --shift all"),
    ],
)
def test_wrong_words_of_train_are_named(tmp_path, words, message):
    result = toosure("train", *WORDS, "--out", tmp_path, *words)
    assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_one_corruption_still_makes_a_run_of_its_own(tmp_path):
    result = toosure("train", *WORDS, "--out", tmp_path, "--device", "cpu", "--shift", "fog:3")
    assert result.exit_code == 0, result.output
    (run,) = find_runs(tmp_path)
    assert run.config["data"].endswith("shift=fog:3") and run.shifts == {}


# -- mixtures -------------------------------------------------------------------------------------


def test_a_mixture_of_runs_is_judged_printed_and_written(runs, tmp_path):
    folders = [run.path for run in runs]
    words = ("--shifts", "--images", 20, "--ood", "noise", "--device", "cpu")
    result = toosure("ensemble", *folders, *words, "-o", tmp_path / "mixture")
    assert result.exit_code == 0, result.output
    assert "20 of 60 test images" in result.stdout
    assert "mixture of 2: mean error under corruption" in result.stdout

    found = json.loads(toosure("ensemble", *folders, *words, "--json").stdout)
    assert found["members"] == [folder.name for folder in folders]
    record = ShiftRecord.of(json.loads((tmp_path / "mixture" / "shifts.json").read_text()))
    assert replace(ShiftRecord.of(found), seconds=record.seconds) == record
    assert set(record.ood) == {"corrupted", "noise"} and "energy" not in record.ood["noise"].auroc

    written = toosure("ensemble", *folders, *words, "-o", tmp_path / "two.json")
    assert written.exit_code == 0 and (tmp_path / "two.json").is_file()


def test_what_is_no_mixture_says_why(runs, tmp_path):
    first, second = (run.path for run in runs)
    cases = [
        ((first, "--shifts"), "needs two members or more"),
        ((first, first, "--shifts"), "is given twice"),
        ((first, tmp_path, "--shifts"), "members are folders of runs"),
        ((first, second, "--ood", "noise"), "--ood goes with --shifts: add"),
        ((first, second, "--shifts", "--of", "ema"), "--of does not go with --shifts"),
        ((first, second, "--shifts", "--ci", 0.9), "--ci does not go with --shifts"),
        ((first, second, "--shifts", "--images", 9, "--ood", "cifar7"), "--ood cifar7"),
    ]
    for words, message in cases:
        result = toosure("ensemble", *words)
        assert result.exit_code == 2 and message in " ".join(result.output.split()), words
