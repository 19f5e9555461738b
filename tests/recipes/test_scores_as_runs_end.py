"""Scores are kept as soon as a run ends, and no run is started when the time is over."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, current_thread

import pytest
import torch

from toosure.recipes import Setting, recipe, reproduce, score_listener
from toosure.recipes.reproduce import train_parts
from toosure.recipes.run_store import RunStore
from toosure.recipes.score_listener import ScoreListener, scoring
from toosure.shifts.plan import ShiftPlan
from toosure.sweep import Sweep, sweep
from toosure.sweep.jobs import Jobs
from toosure.train import ProgressListener, Runtime

pytestmark = pytest.mark.xdist_group("scores")  # workers of pytest share what was trained
CPU = Runtime("cpu")
GAMMA_NET = recipe("gamma-net")


def kept_names(folder):
    file = folder / "scores.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    return {json.loads(line)["name"] for line in lines}


class Spoken(ProgressListener):
    def __init__(self):
        self.lines = []
        self.ended = []
        self.measured = []

    def measuring(self, step):
        self.measured.append(step)

    def message(self, message):
        self.lines.append(message)

    def end(self, path, outcome):
        self.ended.append(path.name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three quick parts after training and before any table is made."""
    folder = tmp_path_factory.mktemp("runs")
    setting = Setting(quick=True, scores=str(folder / "scores"))
    parts = GAMMA_NET.chosen(["common", "features", "cost"])
    listener = Spoken()
    train_parts(parts, setting, folder / "runs", CPU, lambda missing: listener)
    return folder, setting, parts, listener


def test_scores_are_there_before_the_tables(trained):
    folder, setting, (common, cost, features), listener = trained
    names = {config.name for part in (common, features) for config in part.configs(setting)}
    assert kept_names(folder / "scores") == names
    assert {config.name for config in cost.configs(setting)} <= set(listener.ended) - names
    assert listener.measured


def test_only_runs_that_are_compared_by_image_keep_their_images(trained):
    folder, setting, (common, _, _), _ = trained
    files = {path.stem for path in (folder / "scores" / "examples").iterdir()}
    assert files == {config.name for config in common.configs(setting)}


def test_what_was_kept_so_is_not_trained_again(trained, tmp_path):
    _, setting, (common, _, features), _ = trained
    again = train_parts([common, features], setting, tmp_path / "elsewhere", CPU)
    assert not again.runs and not again.stopped


def test_a_run_that_cannot_be_scored_stops_no_other(trained, tmp_path):
    folder, setting, (common, _, _), _ = trained
    good, bad = common.configs(setting)[:2]
    broken = tmp_path / bad.name
    broken.mkdir()
    (broken / "predictions.npz").write_bytes(b"not an archive")
    (broken / "config.json").write_text((folder / "runs" / bad.name / "config.json").read_text())
    (broken / "status.json").write_text('{"status": "complete", "step": 8}')

    spoken = Spoken()
    kept = {good.name: "examples", bad.name: "examples"}
    with scoring(spoken, str(tmp_path / "scores"), kept) as listener:
        listener.for_concurrent_run().end(broken, {"status": "complete"})
        listener.for_concurrent_run().end(folder / "runs" / good.name, {"status": "complete"})
    assert kept_names(tmp_path / "scores") == {good.name}
    assert len(spoken.lines) == 1 and "is not scored yet" in spoken.lines[0]
    assert spoken.ended == [bad.name, good.name]


def test_after_an_error_no_further_run_is_scored(tmp_path, monkeypatch):
    """As after a second Ctrl-C, which is to end the command at once."""
    scored, under_way, go_on = [], Event(), Event()

    def slow(self, path):
        scored.append(path.name)
        under_way.set()
        go_on.wait(60)

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            go_on.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(ScoreListener, "score", slow)
    monkeypatch.setattr(score_listener, "ThreadPoolExecutor", Pool)

    def interrupted():
        with scoring(Spoken(), str(tmp_path), dict.fromkeys("abc", "scores")) as listener:
            for name in "abc":
                listener.end(tmp_path / name, {"status": "complete"})
            under_way.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert scored == ["a"]


def test_in_one_process_the_next_run_waits_for_the_scores(tmp_path, monkeypatch):
    threads = []
    monkeypatch.setattr(ScoreListener, "score", lambda self, path: threads.append(current_thread()))
    with scoring(Spoken(), str(tmp_path), {"a": "scores"}, beside=False) as listener:
        listener.end(tmp_path / "a", {"status": "complete"})
        assert threads == [current_thread()]


def test_without_a_folder_nothing_is_kept():
    listener = Spoken()
    with scoring(listener, "", {}) as same:
        assert same is listener


def test_a_training_that_did_not_end_is_no_problem_where_scores_are_kept(tmp_path):
    config = GAMMA_NET.part("common").configs(Setting(quick=True))[1]
    run = sweep([config], tmp_path, CPU).runs[0]
    (run.path / "status.json").write_text('{"status": "stopped", "step": 3}')
    for scored, problems in (((), [config.name]), ((config.name,), [])):
        store = RunStore(tmp_path, scored)
        assert store.run(config) is None and list(store.problems) == problems


@pytest.mark.parametrize("workers", [1, 2])
def test_no_run_is_started_after_the_deadline(tmp_path, workers):
    configs = GAMMA_NET.part("common").configs(Setting(quick=True))[:2]
    late = sweep(configs, tmp_path, CPU, workers=workers, deadline=time.monotonic() - 1)
    assert late.stopped and not late.runs and not late.failures
    assert not any((tmp_path / config.name).exists() for config in configs)


def test_a_run_under_way_goes_on_after_the_deadline(tmp_path, monkeypatch):
    """The deadline passes when the first run has begun; the second is not started."""
    first = GAMMA_NET.part("common").configs(Setting(quick=True))[1]
    begun = []

    class Begun(ProgressListener):
        def begin(self, config, path, step):
            begun.append(config)

    monkeypatch.setattr(Jobs, "is_late", property(lambda self: bool(begun)))
    done = sweep([first, replace(first, seed=7)], tmp_path, CPU, Begun())
    assert [run.status for run in done.runs] == ["complete"] and done.stopped
    assert begun == [first]


def test_the_command_says_that_it_stopped(tmp_path):
    setting = Setting(quick=True)
    parts = GAMMA_NET.chosen(["common"])
    done = train_parts(parts, setting, tmp_path, CPU, minutes=0)
    assert done.stopped and not done.runs


@pytest.mark.parametrize("interrupted", [False, True])
def test_finished_runs_are_judged_after_the_deadline_but_not_after_ctrl_c(
    tmp_path, monkeypatch, interrupted
):
    judged = []
    part = replace(GAMMA_NET.part("common"), after_training=lambda *_: judged.append("all"))
    if interrupted:
        stopped = Sweep(stopped=True, interrupted=True)
        monkeypatch.setattr(reproduce, "sweep", lambda *_, **__: stopped)
    done = train_parts([part], Setting(quick=True), tmp_path, CPU, minutes=0)
    assert done.stopped and done.interrupted == interrupted
    assert judged == ([] if interrupted else ["all"])


@pytest.mark.parametrize(("minutes", "first"), [(None, "calmo"), (5, None)])
def test_short_runs_go_first_where_the_time_is_limited(tmp_path, monkeypatch, minutes, first):
    started = []
    monkeypatch.setattr(
        reproduce, "sweep", lambda configs, *_, **__: started.extend(configs) or Sweep()
    )
    train_parts(recipe("too-sharp").chosen(["calmo"]), Setting(), tmp_path, CPU, minutes=minutes)
    assert len(started) == 6 and started[0].objective == first != started[-1].objective


def test_runs_that_differ_in_their_runtime_share_the_workers(tmp_path, monkeypatch):
    """A graph for those that one can record; the extra members of a mixture are not judged."""
    started = {}

    def note(configs, *_, changes, **__):
        started.update((config, changes(config)) for config in configs)
        return Sweep()

    monkeypatch.setattr(reproduce, "sweep", note)
    monkeypatch.setattr(Runtime, "torch_device", torch.device("cuda"))
    monkeypatch.setattr(reproduce, "can_record", lambda config: config.objective != "mimo")
    parts = recipe("csam").chosen(["baselines", "networks", "ood"])
    runtime = Runtime(graph=True, shifts=ShiftPlan())
    train_parts(parts, Setting(shift="all"), tmp_path, runtime, minutes=5)

    assert {c.objective for c, own in started.items() if own.get("graph") is False} == {"mimo"}
    assert {c.seed for c, own in started.items() if "shifts" in own} == {3, 4}

    first = next(iter(started))
    assert first.optimizer.startswith("sgd:") and first.model == "resnet18"
    costs = [reproduce.cost(config) for config in started]
    assert costs == sorted(costs)
