"""`toosure demo`: it ends with what helped, beside the runs too, and only where it is true."""

import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.demo import (
    METHODS,
    PLAIN,
    HeldOutScores,
    conclusion,
    demo_configs,
    demo_scores,
    helped,
)
from toosure.runs import find_runs

pytestmark = pytest.mark.xdist_group("demo")  # workers of pytest share what was trained
WORDS = ("--steps", "20", "--seeds", "2")


def run_demo(folder, *words):
    result = CliRunner().invoke(app, ["demo", str(folder), *words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A short demo, carried out once: its folder, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, run_demo(folder, *WORDS)


def test_it_trains_reports_and_ends_with_its_conclusion(demo):
    folder, said = demo
    runs = find_runs(folder / "runs" / "demo")
    assert len(runs) == 2 * len(METHODS) and {run.status for run in runs} == {"complete"}
    assert "2 seeds each" in said and "a demonstration, not a benchmark" in said

    sentence = said.splitlines()[-1]
    assert sentence.startswith("SGD is ") and "SGD + temperature" in sentence
    assert (folder / "runs" / "demo" / "conclusion.txt").read_text() == sentence + "\n"
    page = (folder / "demo_report.html").read_text()
    assert f'<p class="conclusion">{sentence[:20]}' in page  # the report's first sentence

    times = {file: file.stat().st_mtime_ns for file in folder.rglob("metrics.jsonl")}
    assert run_demo(folder, *WORDS).splitlines()[-1] == sentence
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("metrics.jsonl")} == times


def test_the_temperature_is_that_of_the_run_and_keeps_the_accuracy(demo):
    folder, _ = demo
    scores = demo_scores(folder / "runs" / "demo", demo_configs(20, 2))
    plain, scaled = scores[PLAIN], scores["SGD + temperature"]
    assert scaled.accuracy == plain.accuracy and scaled.confidence != plain.confidence


@pytest.mark.parametrize(
    ("accuracy", "ece", "expected"),
    [
        ([0.7, 0.7], [0.1, 0.1], True),
        ([0.8, 0.6], [0.1, 0.1], True),  # by the mean
        ([0.7, 0.69], [0.1, 0.1], False),  # at a price
        ([0.8, 0.8], [0.1, 0.3], False),  # not in every seed
    ],
)
def test_what_helped_is_better_in_every_seed_at_no_less_accuracy(accuracy, ece, expected):
    plain = HeldOutScores([0.7, 0.7], [0.9, 0.9], [0.2, 0.2])
    other = HeldOutScores(accuracy, [0.7, 0.7], ece)
    assert helped(plain, other) is expected
    said = conclusion({PLAIN: plain, "other": other})
    assert ("Better in each of 2 seeds" in said) is expected
    assert ("Not so: other." in said) is not expected


def test_one_seed_is_not_each_of_one():
    scores = {PLAIN: HeldOutScores([0.7], [0.9], [0.2]), "other": HeldOutScores([0.7], [0.7], [0])}
    assert "Better in one seed at no less accuracy: other" in conclusion(scores)


@pytest.mark.slow
def test_everything_helps_in_five_seeds(tmp_path):
    said = run_demo(tmp_path).splitlines()[-1]
    assert said.startswith("SGD is too sure: ")
    assert "Better in each of 5 seeds at no less accuracy: CSAM" in said and "Not so" not in said
