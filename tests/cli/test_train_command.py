"""`toosure train` as it is typed: sweeps, steps to measure at, mistakes in one line, Ctrl-C."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toosure.cli.train import configs_of
from toosure.config import RunConfig
from toosure.runs import Run
from toosure.train.checkpoint import load_checkpoint
from waiting import LIMIT


def timeless(rows):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


@pytest.fixture
def command(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from toosure.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command adds the folder one stands in
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


FEW = ("--data", "digits:train=60,val=40", "--model", "mlp:width=8", "--device", "cpu")


def test_command_trains_a_sweep_and_repeats_nothing(command, tmp_path):
    words = ["train", *FEW, "--optimizer", "sgd:lr=0.1", "csam:lr=0.1,rho=0.1", "--seed", "0..1"]
    words += ["--steps", "4", "--every", "2"]
    first = command(*words)
    assert first.exit_code == 0, first.output
    assert first.stdout.count("complete at step 4") == 4 and "run 4 of 4" in first.stdout
    folders = sorted(p.name for p in (tmp_path / "runs").iterdir())
    assert len(folders) == 4
    again = command(*words)
    assert again.exit_code == 0 and "run 1 of 4" not in again.stdout  # nothing was begun
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == folders
    listed = command("runs", "--where", "optimizer=csam")
    assert listed.stdout.count("csam") == 2 and "sgd" not in listed.stdout
    assert "2 rows" not in listed.stdout
    exported = command("runs", "export", "--parquet", "all.parquet")
    assert "12 rows of 4 runs" in exported.stdout
    config = tmp_path / "runs" / folders[0]
    repeat = command("train", "--config", config, "--out", "again", "--device", "cpu")
    assert repeat.exit_code == 0
    assert timeless(Run(tmp_path / "again" / folders[0]).rows) == timeless(Run(config).rows)


def test_command_measures_at_steps(command, tmp_path):
    words = ["train", *FEW, "--steps", "20", "--at", "1,2,4,...", "--measure", "none"]
    assert command(*words).exit_code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert [row["step"] for row in Run(run).rows] == [1, 2, 4, 8, 16, 20]


def test_at_is_written_out_for_each_runs_own_steps():
    made = configs_of({"steps": [3, 10], "at": ["1,2,4,..."], "seed": [0, 1]}, [])
    assert [(c.seed, c.steps, c.at) for c in made] == [
        (0, 3, (1, 2)), (1, 3, (1, 2)), (0, 10, (1, 2, 4, 8)), (1, 10, (1, 2, 4, 8)),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="steps from 0 to 3"):
        configs_of({"steps": [3], "at": ["1,2,4"]}, [])


@pytest.mark.parametrize("held", [{"every": 7}, {"at": [1, 5]}, {"budget": 0.5}, {}])
@pytest.mark.parametrize("said", [{"every": [2]}, {"at": ["0,3"]}, {"budget": [0.1]}])
def test_when_to_measure_replaces_what_a_file_says_of_it(held, said, tmp_path):
    (tmp_path / "held.json").write_text(json.dumps({"steps": 10, **held}))
    (found,) = configs_of(said, [tmp_path / "held.json"])
    expected = {name: (0, 3) if name == "at" else value[0] for name, value in said.items()}
    assert found == RunConfig(steps=10, **expected)


@pytest.mark.parametrize(
    "words", [["--every", 5, "--budget", 0.1], ["--every", 20, "--at", "1"],
              ["--at", "1,2", "--budget", 0.1]]
)  # fmt: skip
def test_only_one_of_every_at_and_budget(command, words):
    result = command("train", *words)
    assert result.exit_code == 2 and "--every, --at or --budget: give one of them" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--optimizer", "sdg"], "did you mean 'sgd'?"),
        (["--optimizer", "sgd:lr=fast"], "sgd: lr must be"),
        (["--seed", "a"], "expected integers"),
        (["--batch", "some"], "batch must be a whole number or full"),
        (["--clip", "x"], "clip must be a number"),
        (["--every", "0"], "every must be at least 1"),
        (["--at", "soon"], "--at takes steps"),
        (["--config", "none.json"], "cannot be read"),
        (["--device", "quantum"], "cannot be used"),
        (["--graph", "--device", "cpu"], "graph needs CUDA"),
        (["--objective", "calm"], "no objective is called 'calm'"),
        (["--best", "nll", "--min-delta", "0.1"], "min_delta is what patience calls better"),
        (["--model", "mlp:width=-4"], "model mlp:width=-4: an mlp needs depth >= 0, width >= 1"),
        (["--out", __file__], "is a file, not a folder: name another place"),
    ],
)
def test_command_says_what_is_wrong_in_one_line(command, words, message):
    result = command("train", *words)
    assert result.exit_code == 2 and message in result.stderr
    assert result.stderr.count("\n") == 1 and not Path("runs").exists()


def test_command_goes_on_past_a_run_that_fails(command, tmp_path):
    result = command("train", *FEW[2:], "--data", "cifar10", FEW[1], "--steps", "2")
    assert result.exit_code == 1
    assert "holds no cifar-10-batches-py" in result.stdout and "complete at step 2" in result.stdout


NET = """
from math import prod
from torch import nn

def net(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(inputs), WIDTH), nn.Linear(WIDTH, classes))
"""


def test_a_network_of_ones_own_that_was_edited_is_noticed(command, tmp_path):
    words = ["train", *FEW[:2], "--device", "cpu"]
    words += ["--model", "edited:net", "--steps", "1", "--measure", "none"]

    def said(width):
        (tmp_path / "edited.py").write_text(NET.replace("WIDTH", str(width)))
        done = command(*words)
        del sys.modules["edited"]  # the next command is another process, and loads it again
        assert done.exit_code == 0, done.output
        return done.stdout

    note = "the source of edited:net has changed since"
    assert note not in said(8)
    assert note not in said(8)
    again = said(9)
    assert note in again and "move the folder away" in again and "complete at step 1" in again
    (run,) = (tmp_path / "runs").iterdir()
    assert list(Run(run).environment["sources"]) == ["edited:net"]


def test_command_lists_methods(command):
    everything = command("methods").stdout
    for word in ("csam", "adamw", "resnet20", "cifar100", "cosine", "mse"):
        assert f"  {word}  " in everything
    assert "arXiv" in everything and "rho=0.05" in everything
    assert "resnet20" not in command("methods", "optimizer").stdout
    wrong = command("methods", "optimiser")
    assert wrong.exit_code == 2 and "did you mean 'optimizer'" in wrong.stderr


def test_ctrl_c_on_the_command_line(tmp_path):
    words = [sys.executable, "-m", "toosure", "train", *FEW, "--steps", "100000"]
    running = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while "step     20" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=LIMIT)
    assert running.returncode == 130
    assert "stopped at step" in out and "repeat the command" in err
    (run,) = (tmp_path / "runs").iterdir()
    status = json.loads((run / "status.json").read_text())
    assert status["status"] == "stopped" and status["step"] == load_checkpoint(run)[0]["step"]
