"""The command: a table, one JSON object, a page, and exit code 2 with one line on bad input."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.cli.app import ORDER

RUN = CliRunner()


@pytest.fixture
def file(tmp_path):
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (200, 3))
    path = tmp_path / "a.npz"
    np.savez(path, logits=logits, labels=generator.integers(0, 3, 200))
    return path


def test_the_help_lists_commands_in_order_and_none_is_cut_short(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = RUN.invoke(app, ["--help"]).stdout
    listed = [line.split() for line in text.split("Commands:\n")[1].splitlines()]
    assert [words[0] for words in listed] == list(ORDER)
    assert all(words[-1].endswith(".") and not words[-1].endswith("...") for words in listed)


def evaluate(*words):
    return RUN.invoke(app, ["evaluate", *map(str, words)])


def test_table(file):
    result = evaluate(file)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Over-confident by ")
    name, value, low, high = next(line for line in lines if line.startswith("ece")).split()
    assert name == "ece" and float(low) <= float(value) <= float(high)
    assert "n = 200, 15 bins (a, b], 95 % intervals" in lines


def test_json_is_one_object(file):
    result = evaluate(file, "--json", "--bins", 10, "--edge", "left", "--ci", 0.9)
    found = json.loads(result.stdout)
    assert (found["n"], found["classes"], found["bins"], found["edge"]) == (200, 3, 10, "left")
    assert found["intervals"]["level"] == 0.9
    assert found["intervals"]["ece"][0] <= found["ece"] <= found["intervals"]["ece"][1]


def test_json_and_page_together(file, tmp_path):
    page = tmp_path / "a.html"
    result = evaluate(file, "--json", "--html", page)
    json.loads(result.stdout)
    assert str(page) in result.stderr
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ({"probs": [[0.5, 0.4]], "labels": [0]}, [], "row 0 sums to 0.9"),
        ({"logits": [[1.0, -1.0]]}, [], "no array 'labels'"),
        ({"logits": [[1.0, -1.0]], "labels": [2]}, [], "labels must be integers in [0, 2)"),
        ({"logits": [[1.0, -1.0]], "labels": [0]}, ["--kind", "probs"], "no array 'probs'"),
        ({"logits": [[1.0, -1.0]], "labels": [0]}, ["--split", "val"], "no array 'val_logits'"),
        (
            {"logits": [[1.0, -1.0]], "labels": [0]},
            ["--ci", "95"],
            "between 0 and 1, such as 0.95; got 95",
        ),
        ({"logits": [[1.0, -1.0]], "labels": [0]}, ["--bins", "100000"], "from 1 to 1,000; got"),
        (
            {"logits": [[1.0, -1.0]], "labels": [0]},
            ["--html", "/dev/null/a.html"],
            "/dev/null is a file, not a folder",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path, arrays, options, words):
    np.savez(tmp_path / "a.npz", **arrays)
    result = evaluate(tmp_path / "a.npz", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_unreadable_file(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"\x80\x04junk")
    for name in ("a.pt", "none.npz", "a.docx"):
        result = evaluate(tmp_path / name)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.stderr


def test_a_folder_that_is_no_run_and_a_file_that_is_none(file, tmp_path):
    found = evaluate(tmp_path)
    assert found.exit_code == 2 and "holds no predictions.npz: name the folder" in found.stderr
    found = evaluate(file, "--shift", "fog:1")
    assert found.exit_code == 2 and "--shift needs the folder of a run; got" in found.stderr


@pytest.mark.parametrize(
    "options", [["--bins", "0"], ["--edge", "middle"], ["--kind", "votes"], ["--seed", "-1"]]
)
def test_options_that_cannot_be(file, options):
    assert evaluate(file, *options).exit_code == 2


def test_a_folder_after_runs_is_answered(tmp_path):
    result = RUN.invoke(app, ["runs", str(tmp_path)])
    assert result.exit_code == 2 and f"`toosure runs --out {tmp_path}`" in result.stderr
    assert "No such command" in RUN.invoke(app, ["runs", "nonsense"]).stderr


def test_version_and_module():
    words = [sys.executable, "-m", "toosure", "--version"]
    assert subprocess.check_output(words, text=True).startswith("toosure ")
