"""The examples of loops of other people run, and leave a run behind."""

import importlib.util
import runpy
from pathlib import Path

import pytest

from toosure import Run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.filterwarnings("ignore")  # of the frameworks
@pytest.mark.parametrize(
    ("script", "needs", "steps"),
    [
        ("lightning_loop", "lightning", [0, 20, 40, 60]),
        ("trainer_loop", "transformers", [0, 20, 40]),
        ("skorch_loop", "skorch", [0, 20, 40, 60, 80, 87]),
    ],
)
def test_loops_of_other_people(script, needs, steps, tmp_path, monkeypatch, capsys):
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{script}.py"))
    run = Run(tmp_path / "runs" / needs.replace("transformers", "trainer"))
    assert [row["step"] for row in run.rows] == steps and run.status == "ended"
    assert run.rows[-1]["val/accuracy"] > run.rows[0]["val/accuracy"] + 0.2
    assert "ECE 0." in capsys.readouterr().out
