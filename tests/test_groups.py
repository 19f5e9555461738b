"""Tests of one group run in one worker of pytest, so that what they share is made once."""

import os

import pytest


@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(3))
def test_one_worker_takes_all_tests_of_a_group(number, request, tmp_path_factory):
    if not request.config.getoption("loadgroup", False):
        pytest.skip("workers share groups with --dist loadgroup")
    folder = tmp_path_factory.getbasetemp().parent / "together"  # the same for all workers
    folder.mkdir(exist_ok=True)
    worker = os.environ["PYTEST_XDIST_WORKER"]
    (folder / worker).touch()
    assert os.listdir(folder) == [worker]
