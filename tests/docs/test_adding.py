"""Whoever follows the diffs of the page on the code to the letter has what they add."""

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def diffs_of(heading):
    """Return the diffs below a heading of the page on the code."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"(?ms)^```diff\n(.*?)^```", section)


def apply(diff, root):
    """Add the lines with a plus: after the line above them, else before the one below them."""
    for part in re.split(r"(?m)^ # (?=src/)", diff)[1:]:
        name, *lines = part.splitlines()
        file = root / name
        text = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        place = len(text)
        for number, line in enumerate(lines):
            if not line.startswith("+"):
                place = text.index(line[1:]) + 1
                continue
            below = [other[1:] for other in lines[number:] if not other.startswith("+")]
            if number == 0 and below:
                place = text.index(below[0])
            text.insert(place, line[1:])
            place += 1
        file.write_text("\n".join(text) + "\n", encoding="utf-8")


@pytest.fixture
def changed_package(tmp_path):
    """Return a function that applies the diffs below a heading to a copy of the package."""
    shutil.copytree(ROOT / "src" / "toosure", tmp_path / "src" / "toosure")

    def change(heading):
        for diff in diffs_of(heading):
            apply(diff, tmp_path)
        return partial(run_python, tmp_path)

    return change


def run_python(folder, *words):
    """Run the package in a folder, or a module of it."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_diffs_add_a_metric(changed_package, tmp_path):
    run = changed_package("Add a metric, or any quantity of a row")
    rows = ["p_a,p_b,label", "0.95,0.05,a", "0.4,0.6,b", "0.7,0.3,a", "0.02,0.98,b"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    (stated,) = re.findall(r"(?m)^unsure +(.*)$", run("toosure", "evaluate", "a.csv", "--all"))
    value, low, high = map(float, stated.split())
    assert value == 0.5 and low < 0.5 < high

    data = ("--data", "digits:train=60,val=40,test=40", "--model", "mlp:width=8")
    run("toosure", "train", *data, "--steps", "2", "--measure", "none")
    assert "unsure" in run("toosure", "runs").splitlines()[0]


@pytest.mark.slow
def test_the_diffs_add_a_calibrator(changed_package):
    run = changed_package("Add a calibrator")
    assert "mine  Divide the logits" in run("toosure", "methods", "calibrator")
    contracts = ROOT / "tests" / "contracts" / "test_calibrators.py"
    chosen = ("-k", "mine or agree", "-p", "no:cacheprovider", "-c", os.devnull)
    assert "passed" in run("pytest", "-q", *chosen, str(contracts))
