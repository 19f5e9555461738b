"""The examples and the README run, are short, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

from toosure import Run

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_examples_are_short(file):
    assert len(file.read_text().splitlines()) <= 40


def test_own_loop(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "own_loop.py"))
    assert "ECE 0.060" in capsys.readouterr().out
    rows = Run(tmp_path / "runs" / "own_loop").rows
    assert [row["step"] for row in rows] == list(range(0, 161, 20))
    marked = re.findall(r"# \d$", (EXAMPLES / "own_loop.py").read_text(), re.MULTILINE)
    assert marked == ["# 1", "# 2", "# 3"]


def test_readme_shows_what_runs(capsys):
    readme = (ROOT / "README.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)), {})
    assert "points" in capsys.readouterr().out
    for target in re.findall(r"\]\((?!http)([^)#]+)", readme):
        assert (ROOT / target).exists(), target


def test_binary(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["binary.py", str(tmp_path / "page.html")])
    runpy.run_path(str(EXAMPLES / "binary.py"), run_name="__main__")
    sentence, *scores = capsys.readouterr().out.splitlines()
    assert sentence.startswith("Over-confident by")
    before, platt, isotonic = (float(line.split()[-1]) for line in scores)
    assert platt < before and isotonic < before
    assert "frequency of class 1, %" in (tmp_path / "page.html").read_text()


def test_batch_ensemble(capsys):
    runpy.run_path(str(EXAMPLES / "batch_ensemble.py"))
    out = capsys.readouterr().out
    member, mixture = map(float, re.findall(r"\d\.\d{4}", out))
    assert mixture <= member and "two members differ on" in out


def test_shifts(capsys):
    runpy.run_path(str(EXAMPLES / "shifts.py"))
    *lines, unknown = capsys.readouterr().out.splitlines()
    accuracy, ece = zip(
        *(map(float, re.findall(r"(\d+\.\d)", line)) for line in lines), strict=True
    )
    assert list(accuracy) == sorted(accuracy, reverse=True) and ece[-1] > ece[0] + 5
    assert float(unknown.split()[-1]) > 0.9


def test_steered_radius(capsys):
    runpy.run_path(str(EXAMPLES / "steered_radius.py"))
    rho = float(re.match(r"rho (\S+),", capsys.readouterr().out)[1])
    assert rho > 0.06  # noisy labels: a network that learns them is too sure
    marked = re.findall(r"# \d$", (EXAMPLES / "steered_radius.py").read_text(), re.MULTILINE)
    assert marked == ["# 1", "# 2"]
