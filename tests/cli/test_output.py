"""Commands whose output nobody reads any more: training goes on, files are written."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.cli.tables import PIPED, console
from toosure.runs import Run

FEW = ["--data", "digits:train=60,val=40", "--model", "mlp:width=8", "--device", "cpu"]
TOOSURE = [sys.executable, "-m", "toosure"]


def only_run(folder):
    (path,) = (folder / "runs").iterdir()
    return Run(path)


def run_with(redirections, words, folder):
    """Run a command in a shell that leads its streams elsewhere."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" {redirections}', "bash", *TOOSURE, *words],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("redirections", "workers"),
    [
        ("| head -2", "1"),
        pytest.param("<&- >&- 2>&-", "1", marks=pytest.mark.slow),
        pytest.param("| head -2", "2", marks=pytest.mark.slow),
        pytest.param("> /dev/full", "1", marks=pytest.mark.slow),
    ],
)
def test_training_goes_on_where_nobody_reads(redirections, workers, tmp_path):
    words = ["train", *FEW, "--every", "1", "--steps", "30", "--workers", workers]
    done = run_with(redirections, words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    run = only_run(tmp_path)
    assert run.status == "complete" and len(run.rows) == 31
    if redirections == "| head -2" and workers == "1":
        assert done.stderr.count("\n") == 1
        assert "no output any more (Broken pipe): the training goes on, with its rows in runs" in (
            done.stderr
        )


def test_colours_in_a_log_do_not_make_its_tables_narrow(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == PIPED


@pytest.fixture
def predictions(tmp_path):
    random = np.random.default_rng(0)
    logits = 5 * random.normal(size=(200, 3))
    labels = random.integers(0, 3, 200)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    return tmp_path


def test_letters_that_the_output_lacks_are_question_marks(predictions):
    words = [*TOOSURE, "calibrate", "val.npz", "--method", "temperature"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, cwd=predictions, capture_output=True, text=True, env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert "? s.e." in done.stdout


def test_a_calibrator_is_written_before_anything_is_printed(predictions):
    script = """
import os, sys
from toosure.cli import main
class Gone:
    def __init__(self, stream): self.stream = stream
    def write(self, text):
        if text.strip():  # as a pipe whose reader has gone
            assert os.path.exists("c.pt") and os.path.exists("c.html")
            raise BrokenPipeError(32, "Broken pipe")
        return 0
    def __getattr__(self, name): return getattr(self.stream, name)
sys.stdout = Gone(sys.stdout)
sys.argv = "toosure calibrate val.npz --method temperature -o c.pt --html c.html".split()
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=predictions, capture_output=True, text=True
    )
    assert "AssertionError" not in done.stderr and "Traceback" not in done.stderr
    assert {"c.pt", "c.html"} <= set(os.listdir(predictions))


def test_a_file_that_cannot_be_written_does_not_hide_the_result(predictions, monkeypatch):
    monkeypatch.chdir(predictions)
    (predictions / "c.html").symlink_to(predictions / "none" / "c.html")
    words = ["calibrate", "val.npz", "--method", "temperature", "--json", "--html", "c.html"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "cannot be written" in done.stderr
    assert json.loads(done.stdout)
