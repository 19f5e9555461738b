"""Run folders of earlier code: still read and reported; its runs are reproduced and resumed."""

import shutil
from pathlib import Path

import pytest

from toosure.config import RunConfig
from toosure.page.report import report
from toosure.runs import Run, find_runs
from toosure.train import Runtime, train

RUNS = Path(__file__).parent / "runs"
NAMES = ("sgd", "sam", "csam", "gamma_net", "calmo")
STOPPED = ("sgd", "csam", "gamma_net")
ONE_THREAD = Runtime("cpu", threads=1)


def assert_same_rows(run: Run, golden: Run) -> None:
    """Every old key has its old value: to 1e-5, curvature to the error that its row states."""
    assert [row["step"] for row in run.rows] == [row["step"] for row in golden.rows]
    for row, old in zip(run.rows, golden.rows, strict=True):
        for key, value in old.items():
            if "seconds" in key or key.endswith("_error"):
                continue
            tolerance = max(1e-5, old.get(f"{key}_error", 0.0))
            assert row[key] == pytest.approx(value, rel=tolerance, abs=1e-5), (old["step"], key)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_run_is_reproduced(name, tmp_path):
    golden = Run(RUNS / name)
    run = train(RunConfig.read(golden.path), tmp_path, ONE_THREAD)
    assert run.status == "complete"
    assert_same_rows(run, golden)


@pytest.mark.parametrize("name", STOPPED)
def test_a_golden_checkpoint_resumes_to_the_golden_rows(name, tmp_path):
    config = RunConfig.read(RUNS / f"stopped_{name}")
    shutil.copytree(RUNS / f"stopped_{name}", tmp_path / config.name)
    run = train(config, tmp_path, ONE_THREAD)
    assert run.status == "complete"
    assert_same_rows(run, Run(RUNS / name))


def test_golden_folders_are_read_and_reported():
    runs = find_runs(RUNS)
    assert [run.name for run in runs] == sorted([*NAMES, *(f"stopped_{n}" for n in STOPPED)])
    assert all(run.status == "complete" for run in runs if not run.name.startswith("stopped"))
    page = report(RUNS)
    assert "gamma_net" in page
    assert "calmo" in page
