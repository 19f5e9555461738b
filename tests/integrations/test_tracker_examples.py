"""The examples of trackers and of a study run, and leave what they say."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def in_process(name, folder):
    """Run where a `.wandb` file is whole afterwards."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tensorboard(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "rows_to_tensorboard.py"))
    assert "ECE 0." in capsys.readouterr().out
    assert list(tmp_path.glob("tb/mine/events.*"))


def test_tune(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "tune_words.py"))
    said = capsys.readouterr().out
    assert said.startswith("Pareto front") and "accuracy 0." in said
    assert len(list(tmp_path.glob("runs/tune_words/*/status.json"))) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("name", "left"), [("wandb", "wandb/*/*.wandb"), ("mlflow", "mlflow.db")])
def test_wandb_and_mlflow(tmp_path, name, left):
    pytest.importorskip(name)
    assert "ECE 0." in in_process(f"rows_to_{name}", tmp_path)
    assert list(tmp_path.glob(left))
