"""The Pareto front on the page: shown for studies alone, whatever their file holds."""

import json

import numpy as np
import pytest
from made_runs import HOSTILE, make_run

from toosure.figures import pareto_front
from toosure.page.page_runs import PageRuns
from toosure.page.sections.pareto import pareto
from toosure.runs import find_runs

GOALS = ["val/accuracy", "val/ece"]


@pytest.fixture
def study(tmp_path):
    for seed, (accuracy, ece) in enumerate([(0.9, 0.2), (0.8, 0.1), (0.7, 0.3), (0.95, 0.4)]):
        config = {"optimizer": f"sgd:lr={seed}", "model": HOSTILE}
        status = "complete" if seed < 3 else "stopped"
        make_run(tmp_path / f"run{seed}", config, range(2), status, accuracy=accuracy, ece=ece)
    return tmp_path


def section(folder, text=None):
    if text is not None:
        (folder / "tuning.json").write_text(text)
    return pareto(PageRuns(find_runs(folder)))


def test_front_of_a_study(study):
    shown = section(study, json.dumps({"goals": GOALS}))
    table = shown[shown.index("<tbody>") :]
    assert table.index("lr=0") < table.index("lr=1")  # the most accurate first
    assert "lr=2" not in table and "lr=3" not in table  # beaten, and not complete
    assert HOSTILE not in shown and "accuracy against ECE" in shown


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{",
        "[]",
        "{}",
        '{"goals": 3}',
        '{"goals": ["val/accuracy"]}',
        '{"goals": ["val/accuracy", "val/unknown"]}',
        '{"goals": ["val/accuracy", {"a": 1}]}',
        '{"goals": ["val/accuracy", "val/adaptive_ece"]}',  # in no row
    ],
)
def test_no_section_where_there_is_no_study(study, text):
    assert section(study, text) == ""


def test_front_by_its_definition():
    """No other row is as good everywhere and better somewhere; equal rows stay together."""
    generator = np.random.default_rng(0)
    values = generator.integers(0, 4, (60, 3)).astype(float)
    signs = np.array([1.0, -1.0, 1.0])
    scores = values * signs
    expected = [
        not any((other >= own).all() and (other > own).any() for other in scores) for own in scores
    ]
    assert pareto_front(values, signs).tolist() == expected
    assert pareto_front(np.ones((3, 2)), (1, 1)).all()
