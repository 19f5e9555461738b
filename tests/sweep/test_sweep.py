"""Sweeps: one run after another, complete ones skipped, what is missing finished."""

import pytest

from toosure.config import sweep_of
from toosure.sweep import sweep
from toosure.train import ProgressListener, Runtime, loading

CPU = Runtime("cpu")


def configs(**more):
    return sweep_of(
        **{"data": ["digits:train=60,val=40"], "model": ["mlp:width=8"], "steps": [4], **more}
    )


class Count(ProgressListener):
    def __init__(self):
        self.begun, self.ended, self.said = [], [], []

    def begin(self, config, path, step):
        self.begun.append((config.seed, step))

    def end(self, path, outcome):
        self.ended.append(outcome["status"])

    def message(self, message):
        self.said.append(message)


def test_repeating_finishes_what_is_missing(tmp_path):
    first, second = Count(), Count()
    sweep(configs(seed=[0, 1]), tmp_path, CPU, first)
    done = sweep(configs(seed=[0, 1, 2]), tmp_path, CPU, second)
    assert first.begun == [(0, 0), (1, 0)] and second.begun == [(2, 0)]
    assert second.ended == ["complete"] * 3
    assert [run.status for run in done.runs] == ["complete"] * 3


def test_data_are_loaded_once(tmp_path, monkeypatch):
    calls = []
    from toosure.sweep import run_one as module

    monkeypatch.setattr(
        module, "load_data", lambda c, m: calls.append(c.data) or loading.load_data(c, m)
    )
    sweep(configs(seed=[0, 1]), tmp_path, CPU)
    sweep(configs(seed=[0, 1]), tmp_path, CPU)
    assert len(calls) == 1


def test_one_failure_does_not_stop_the_others(tmp_path):
    show = Count()
    data = ["cifar10", "digits:train=60,val=40"]
    done = sweep(configs(data=data), tmp_path, Runtime("cpu", data_root=tmp_path), show)
    assert len(done.runs) == len(done.failures) == 1
    assert show.said[0].startswith("failed: cifar10-mlp") and str(tmp_path) in show.said[0]


def test_a_stop_ends_the_sweep(tmp_path):
    import os
    import signal

    class Press(Count):
        def row(self, row):
            os.kill(os.getpid(), signal.SIGINT)

    show = Press()
    done = sweep(configs(seed=[0, 1]), tmp_path, CPU, show)
    assert done.stopped and show.ended == ["stopped"]
    again = sweep(configs(seed=[0, 1]), tmp_path, CPU)
    assert [run.status for run in again.runs] == ["complete"] * 2


@pytest.mark.parametrize("workers", [1])
def test_results_do_not_depend_on_the_order(tmp_path, workers):
    rows = []
    for out, order in (("a", [0, 1]), ("b", [1, 0])):
        done = sweep(configs(seed=order), tmp_path / out, CPU)
        rows.append({run.name: run.last["train/loss"] for run in done.runs})
    assert rows[0] == rows[1]
