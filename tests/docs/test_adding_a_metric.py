"""Whoever follows the diffs of "Add a metric" to the letter has one that is stated and shown."""

import os
import re
import shutil
import subprocess
import sys
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


@pytest.mark.slow
def test_the_diffs_add_a_metric(tmp_path):
    shutil.copytree(ROOT / "src" / "toosure", tmp_path / "src" / "toosure")
    for diff in diffs_of("Add a metric, or any quantity of a row"):
        apply(diff, tmp_path)

    def toosure(*words):
        """Run a command of the changed package."""
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "toosure", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    rows = ["p_a,p_b,label", "0.95,0.05,a", "0.4,0.6,b", "0.7,0.3,a", "0.02,0.98,b"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    (stated,) = re.findall(r"(?m)^unsure +(.*)$", toosure("evaluate", "a.csv", "--all"))
    value, low, high = map(float, stated.split())
    assert value == 0.5 and low < 0.5 < high

    data = ("--data", "digits:train=60,val=40,test=40", "--model", "mlp:width=8")
    toosure("train", *data, "--steps", "2", "--measure", "none")
    assert "unsure" in toosure("runs").splitlines()[0]
