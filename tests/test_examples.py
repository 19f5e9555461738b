"""The examples and the README run, are short, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_examples_are_short(file):
    assert len(file.read_text().splitlines()) <= 40


def test_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["demo.py"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "demo.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "Over-confident by 7.2 points" in capsys.readouterr().out
    assert (tmp_path / "demo_report.html").stat().st_size > 1_000_000


def test_readme_shows_what_runs(capsys):
    readme = (ROOT / "README.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)), {})
    assert "points" in capsys.readouterr().out
    for target in re.findall(r"\]\((?!http)([^)#]+)", readme):
        assert (ROOT / target).exists(), target
