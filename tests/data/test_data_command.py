"""`toosure data` says what is here; `--shift` reaches training and evaluation."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.data.catalogue import SOURCES, Download
from toosure.data.download import checksum


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


def test_what_is_here_and_what_is_not(command, root):
    out = command("data", "--data-root", root)
    assert out.exit_code == 0
    rows = {line.split()[0]: line for line in out.stdout.splitlines() if line}
    assert " here " in rows["cifar10"] and "170 MB" in rows["cifar10"]
    assert " missing " in rows["mnist"] and "CC BY-SA 3.0" in rows["mnist"]
    found = json.loads(command("data", "--json", "--data-root", root).stdout)
    status = {each["name"]: each["status"] for each in found}
    assert list(status) == list(SOURCES)
    here = {name for name, each in status.items() if each == "here"}
    assert here == {"digits", "cifar10", "cifar100"}


def test_one_data_set(command):
    out = command("data", "imagenet_c").stdout
    assert "no imagenet-c" in out and "CORRUPTION/SEVERITY" in out and "also needs imagenet" in out
    found = json.loads(command("data", "svhn", "--json").stdout)
    assert found["licence"] == "non-commercial use only" and len(found["downloads"]) == 2
    wrong = command("data", "cifar")
    assert wrong.exit_code == 2 and "did you mean 'cifar10'" in wrong.stderr
    assert command("data", "--download").exit_code == 2


def test_download(command, root, archive, monkeypatch, tmp_path):
    new = Download(archive.as_uri(), "c.tar.gz", checksum(archive), archive.stat().st_size)
    source = replace(SOURCES["cifar10"], downloads=(new,), needs=(("c.tar.gz",),))
    monkeypatch.setitem(SOURCES, "cifar10", source)
    where = tmp_path / "new"
    (tmp_path / "new").mkdir()
    (where / ".c.tar.gz.part").write_bytes(b"beg")
    assert "broken off" in command("data", "cifar10", "--data-root", where).stdout
    (where / ".c.tar.gz.part").unlink()
    out = command("data", "cifar10", "--data-root", where, "--download")
    assert out.exit_code == 0 and "here" in out.stdout and (where / "c.tar.gz").is_file()
    by_hand = command("data", "imagenet", "--download")
    assert by_hand.exit_code == 2 and "image-net.org" in by_hand.stderr


def test_what_is_here_is_whole(command, root):
    def status(name):
        return json.loads(command("data", name, "--json", "--data-root", root).stdout)

    for name, folder in (("tiny_imagenet", "tiny-imagenet-200"), ("cifar10_c", "CIFAR-10-C")):
        assert status(name)["missing"] == [folder]
        (root / folder).mkdir()
        assert status(name)["status"] == "missing" and status(name)["missing"][0] > folder
    (root / "CIFAR-10-C" / "labels.npy").touch()
    assert status("cifar10_c")["status"] == "here"
    (root / "cifar-10-batches-py" / "test_batch").unlink()
    for name in ("cifar10", "cifar10_c"):  # without CIFAR-10 its corrupted twin is of no use
        assert status(name)["missing"] == ["cifar-10-batches-py/test_batch"]
    for folder in ("imagenet/train/n1", "imagenet/val/n1", "imagenet-c/fog/3"):
        assert status("imagenet_c")["status"] == "missing"
        (root / folder).mkdir(parents=True)
    assert status("imagenet_c")["missing"] == ["imagenet/train/*/*", "imagenet/val/*/*"]
    for part in ("train", "val"):
        (root / "imagenet" / part / "n1" / "1.JPEG").touch()
    assert status("imagenet_c")["status"] == status("imagenet")["status"] == "here"


def test_download_of_what_is_here(command, root):
    for name in ("digits", "cifar10"):
        out = command("data", name, "--data-root", root, "--download")
        assert out.exit_code == 0 and "status     here" in out.stdout, out.output
    assert not (root / "cifar-10-python.tar.gz").exists()


def test_download_fetches_what_is_needed_besides(command, root, archive, monkeypatch, tmp_path):
    (tmp_path / "new" / "CIFAR-10-C").mkdir(parents=True)
    (tmp_path / "new" / "CIFAR-10-C" / "labels.npy").touch()
    new = replace(SOURCES["cifar10"].downloads[0], url=archive.as_uri(), digest=checksum(archive))
    new = replace(new, size=archive.stat().st_size)
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], downloads=(new,)))
    out = command("data", "cifar10_c", "--data-root", tmp_path / "new", "--download")
    assert "status     here" in out.stdout and (tmp_path / "new" / archive.name).is_file()


FEW = ("--model", "mlp:width=8", "--steps", 5, "--measure", "none", "--device", "cpu")


@pytest.mark.slow
def test_shift_in_training_and_of_a_finished_run_agree(command, tmp_path):
    words = ("--data", "digits:train=60,val=40", "--shift", "gaussian_noise:5", "fog:2")
    out = command("train", *words, *FEW)
    assert out.exit_code == 0, out.output
    first, second = sorted((tmp_path / "runs").glob("digits*"), key=lambda p: "fog" in p.name)
    assert json.loads((first / "config.json").read_text())["data"] == (
        "digits:train=60,val=40,shift=gaussian_noise:5"
    )
    asked = ("evaluate", first, "--json", "--split", "shift")
    trained = json.loads(command(*asked).stdout)
    again = json.loads(
        command(
            "evaluate", second, "--json", "--shift", "gaussian_noise:5", "--device", "cpu"
        ).stdout
    )
    assert again["n"] == 500 and [again[m] for m in ("nll", "ece")] == [
        trained[m] for m in ("nll", "ece")
    ]
    clean = json.loads(command("evaluate", first, "--json").stdout)
    assert clean["nll"] != trained["nll"] and clean["n"] == 500


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ("fog", "shift must be gaussian_noise|"),
        ("fog:6", ":1|2|3|4|5"),
        ("gausian_noise:3", "did you mean 'gaussian_noise'?"),
    ],
)
def test_wrong_shifts_are_named(command, shift, message, tmp_path):
    out = command("train", "--data", "digits", "--shift", shift, *FEW)
    assert out.exit_code == 2 and message in out.stderr
    out = command("evaluate", tmp_path, "--shift", shift)
    assert out.exit_code == 2 and "--shift must be" in out.stderr
    assert ("did you mean" in out.stderr) == (shift == "gausian_noise:3")


def test_a_shift_needs_data_and_a_run(command, tmp_path):
    assert "--data: name one" in command("train", "--shift", "fog:3").stderr
    assert command("evaluate", "nowhere", "--shift", "fog:3").exit_code == 2
    command("train", "--data", "digits:train=60,val=40", *FEW)
    (run,) = (tmp_path / "runs").glob("digits*")
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    out = command("evaluate", run, "--shift", "fog:3")
    assert out.exit_code == 2 and "holds no checkpoint" in out.stderr


def test_objectives_that_predict_otherwise_do_so_under_a_shift(command, tmp_path):
    words = ("--data", "digits:train=60,val=40", "--shift", "fog:2", "--objective", "balcal")
    out = command("train", *words, *FEW)
    assert out.exit_code == 0, out.output
    (run,) = (tmp_path / "runs").glob("digits*")
    trained = json.loads(command("evaluate", run, "--json", "--split", "shift").stdout)
    again = json.loads(command("evaluate", run, "--json", "--shift", "fog:2").stdout)
    assert again["nll"] == pytest.approx(trained["nll"])
    assert np.load(run / "predictions.npz")["shift_logits"].shape == (500, 10)
